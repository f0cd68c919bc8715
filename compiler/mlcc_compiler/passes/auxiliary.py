"""The functions of a library beside `forward`: `sample`, `copy_pages` and `interface`."""

from __future__ import annotations

from typing import Any

from mlcc_compiler._tvm import ir, relax
from mlcc_compiler.graph import tensor
from mlcc_compiler.kernels.frame import f32, page_argument
from mlcc_compiler.kernels.kernel_set import KernelSet
from mlcc_compiler.kernels.step import COPIES, SAMPLING
from mlcc_compiler.layout import KvLayout
from mlcc_compiler.passes.variables import tensor_of, variables


def add_sample(module: ir.IRModule, kernels: KernelSet, vocab_size: int) -> ir.IRModule:
    """sample(logits f32[r, V], the arrays of `step.SAMPLING`) -> ids, logprobs."""
    builder = relax.BlockBuilder(module)
    symbols: dict[str, Any] = {}
    inputs = variables({"logits": f32("r", vocab_size), **SAMPLING}, symbols)
    with builder.function("sample", inputs):
        with builder.dataflow():
            kernel = builder.add_func(kernels.kernel("sample", vocab_size), "sample_rows")
            out = [tensor([symbols["r"]], "int32"), tensor([symbols["r"]])]
            result = builder.emit_output(relax.call_tir(kernel, inputs, out))
        builder.emit_func_output(result)
    return builder.finalize()


def add_copy_pages(module: ir.IRModule, kernels: KernelSet, layout: KvLayout) -> ir.IRModule:
    """copy_pages(the arrays of `step.COPIES`, kv) -> kv, written in place, every layer."""
    builder = relax.BlockBuilder(module)
    symbols: dict[str, Any] = {}
    copies = variables(COPIES, symbols)
    page_type = tensor_of(page_argument(layout), symbols)
    kv = relax.Var("kv", relax.TupleType([page_type] * layout.layers))
    with builder.function("copy_pages", [*copies, kv]):
        with builder.dataflow():
            kernel = builder.add_func(kernels.kernel("copy_pages", layout), "copy_page_rows")
            copied = []
            for layer in range(layout.layers):
                old = builder.emit(relax.TupleGetItem(kv, layer))
                inputs = [*copies, old]
                place = len(inputs) - 1
                call = relax.op.call_tir_inplace(kernel, inputs, [place], old.ty)
                copied.append(builder.emit(call))
            result = builder.emit_output(relax.Tuple(copied))
        builder.emit_func_output(result)
    return builder.finalize()


def add_interface(module: ir.IRModule, interface: str) -> ir.IRModule:
    """interface() -> the hash of the manifest that the code was compiled for (`mlcc.manifest`).

    For a module that is ready for code generation: only then its weights are known.
    """
    said = relax.Function([], relax.SeqExpr([], ir.StringImm(interface)), relax.ObjectType())
    extended = ir.IRModule(module.functions, attrs=module.attrs)
    extended["interface"] = said.with_attr("global_symbol", "interface")
    return extended
