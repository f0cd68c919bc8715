"""The functions of a library beside `forward`: `sample`, `copy_pages` and `interface`."""

from __future__ import annotations

from mlcc_compiler._tvm import ir, relax, tirx
from mlcc_compiler.kernels.kernel_set import KernelSet
from mlcc_compiler.passes.paged_kv import KvLayout
from mlcc_compiler.passes.rewrite import tensor


def add_sample(module: ir.IRModule, kernels: KernelSet, vocab_size: int) -> ir.IRModule:
    """sample(logits f32[r, V], temperature, top_k, top_p, min_p, uniforms) -> ids, logprobs."""
    builder = relax.BlockBuilder(module)
    rows = tirx.Var("r", "int64")
    logits = relax.Var("logits", tensor([rows, vocab_size]))
    dtypes = {
        "temperature": "float32",
        "top_k": "int32",
        "top_p": "float32",
        "min_p": "float32",
        "uniforms": "float32",
    }
    inputs = [logits, *(relax.Var(name, tensor([rows], d)) for name, d in dtypes.items())]
    with builder.function("sample", inputs):
        with builder.dataflow():
            kernel = builder.add_func(kernels.sample(vocab_size), "sample_rows")
            out = [tensor([rows], "int32"), tensor([rows])]
            result = builder.emit_output(relax.call_tir(kernel, inputs, out))
        builder.emit_func_output(result)
    return builder.finalize()


def add_copy_pages(module: ir.IRModule, kernels: KernelSet, layout: KvLayout) -> ir.IRModule:
    """copy_pages(source i32[c], destination i32[c], kv) -> kv, written in place, every layer."""
    builder = relax.BlockBuilder(module)
    count, num_pages = tirx.Var("c", "int64"), tirx.Var("num_pages", "int64")
    source, destination = (relax.Var(n, tensor([count], "int32")) for n in ("src", "dst"))
    page_type = tensor([num_pages, *layout.page_shape], layout.dtype)
    kv = relax.Var("kv", relax.TupleType([page_type] * layout.layers))
    with builder.function("copy_pages", [source, destination, kv]):
        with builder.dataflow():
            kernel = builder.add_func(kernels.copy_pages(layout), "copy_page_rows")
            copied = []
            for layer in range(layout.layers):
                old = builder.emit(relax.TupleGetItem(kv, layer))
                call = relax.op.call_tir_inplace(kernel, [source, destination, old], [2], old.ty)
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
