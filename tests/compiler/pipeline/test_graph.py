"""Kernels that a pass adds to a module: equal ones once, and under names that are free."""

from __future__ import annotations

from typing import Any

from mlcc_compiler.ir._tvm import T, ir, relax
from mlcc_compiler.ir.graph import Graph, tensor
from mlcc_compiler.kernels.frame import f32, kernel


def scaled(factor: float) -> Any:
    """A new kernel, y = factor * x of one number."""

    def body(x: Any, y: Any) -> None:
        T.buffer_store(y, x[0] * T.float32(factor), [0])

    return kernel(body, x=f32(1), y=f32(1))


def emitted(name: str, factors: list[float], module: ir.IRModule | None = None) -> ir.IRModule:
    """The module with a function that calls a kernel for each factor in turn."""
    graph, value = Graph(module), relax.Var("x", tensor([1]))
    with graph.builder.function(name, [value]):
        with graph.builder.dataflow():
            for factor in factors:
                value = graph.call_tir(scaled(factor), "scale", [value], tensor([1]))
            output = graph.builder.emit_output(value)
        graph.builder.emit_func_output(output)
    return graph.finalize()


def called(module: ir.IRModule, name: str) -> list[str]:
    (block,) = module[name].body.blocks
    calls = [each.value for each in block.bindings if isinstance(each.value, relax.Call)]
    return [call.args[0].name_hint for call in calls]


def test_equal_kernels_are_added_once() -> None:
    module = emitted("first", [2, 3, 2])
    one, two, again = called(module, "first")
    assert one == again != two
    assert {variable.name_hint for variable in module.functions} == {"first", one, two}


def test_another_function_shares_kernels_and_takes_no_name() -> None:
    """Kernels of earlier passes count, too; a name that one of them has is not given again."""
    before = emitted("first", [2])
    (two,) = called(before, "first")
    after = emitted("second", [3, 2], before)
    three, shared = called(after, "second")
    assert shared == two != three
    assert {variable.name_hint for variable in after.functions} == {"first", "second", two, three}
    assert after[two].same_as(before[two])
    relax.analysis.well_formed(after)  # raises if it is not
