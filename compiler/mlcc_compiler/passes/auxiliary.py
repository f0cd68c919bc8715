"""The functions of a library beside `forward`: `sample`, `copy_pages` and `interface`."""

from __future__ import annotations

from mlcc.engine.tables import StepLayout
from mlcc_compiler._tvm import ir, relax
from mlcc_compiler.caches import Caches
from mlcc_compiler.graph import tensor
from mlcc_compiler.kernels.kernel_set import KernelSet
from mlcc_compiler.passes.variables import UPDATES, cache_variable, size_variable, step_variable


def add_sample(
    module: ir.IRModule, kernels: KernelSet, vocab_size: int, layout: StepLayout
) -> ir.IRModule:
    """sample(logits f32[r, V], step) -> ids i32[r], logprobs f32[r]."""
    builder = relax.BlockBuilder(module)
    rows = size_variable("r")
    inputs = [relax.Var("logits", tensor([rows, vocab_size])), step_variable(layout)]
    with builder.function("sample", inputs):
        with builder.dataflow():
            kernel = builder.add_func(kernels.kernel("sample", vocab_size, layout), "sample_rows")
            out = [tensor([rows], "int32"), tensor([rows])]
            result = builder.emit_output(relax.call_tir(kernel, inputs, out))
        builder.emit_func_output(result)
    return builder.finalize()


def add_copy_pages(
    module: ir.IRModule, kernels: KernelSet, caches: Caches, layout: StepLayout
) -> ir.IRModule:
    """copy_pages(step, sizes (c), caches) -> caches, written in place, every tensor."""
    builder = relax.BlockBuilder(module)
    count, step = size_variable("c"), step_variable(layout)
    sizes = relax.Var("sizes", relax.ShapeType([count]))
    tensors = cache_variable(caches)
    with builder.function("copy_pages", [step, sizes, tensors]):
        with builder.dataflow():
            copied: list[relax.Var] = []
            for place, (group, kept) in enumerate(caches.tensors):
                kernel = kernels.kernel("copy_pages", kept, layout, group).with_attr(UPDATES, [1])
                function = builder.add_func(kernel, "copy_page_rows")
                old = builder.emit(relax.TupleGetItem(tensors, place))
                call = relax.op.call_tir_inplace(function, [step, old, count], [1], old.ty)
                copied.append(builder.emit(call))
            result = builder.emit_output(relax.Tuple(copied))
        builder.emit_func_output(result)
    return builder.finalize()


def add_interface(module: ir.IRModule, interface: str) -> ir.IRModule:
    """interface() -> the hash of the numbers in the manifest that the code was compiled for.

    For a module that is ready for code generation: only then its weights are known.
    """
    said = relax.Function([], relax.SeqExpr([], ir.StringImm(interface)), relax.ObjectType())
    extended = ir.IRModule(module.functions, attrs=module.attrs)
    extended["interface"] = said.with_attr("global_symbol", "interface")
    return extended
