"""Adds the library's functions beside `forward`: `sample`, `top_logprobs`, `adjust`, `copy_pages`
and `interface`.
"""

from __future__ import annotations

from dataclasses import replace

from mlcc.engine.batch.adjust_tables import AdjustLayout
from mlcc.engine.batch.tables import StepLayout
from mlcc_compiler.ir._tvm import ir, relax
from mlcc_compiler.ir.caches import Caches
from mlcc_compiler.ir.graph import Graph, tensor
from mlcc_compiler.kernels.kernel_set import KernelSet
from mlcc_compiler.passes.variables import UPDATES, cache_variable, size_variable, step_variable


def add_sample(
    module: ir.IRModule, kernels: KernelSet, vocab_size: int, layout: StepLayout
) -> ir.IRModule:
    """sample(logits f32[r, V], step) -> ids i32[r], logprobs f32[r]."""
    rows = size_variable("r")
    inputs = [relax.Var("logits", tensor([rows, vocab_size])), step_variable(layout)]
    return _add(module, kernels, "sample", inputs, vocab_size, layout)


def add_top_logprobs(
    module: ir.IRModule, kernels: KernelSet, vocab_size: int, layout: StepLayout
) -> ir.IRModule:
    """top_logprobs(logits f32[r, V], step, outputs of `sample`) -> ids i32[r, 20], logprobs f32[r,
    20]: called only if a row requests some."""
    rows = size_variable("r")
    inputs = [relax.Var("logits", tensor([rows, vocab_size])), step_variable(layout)]
    inputs.append(relax.Var("ids", tensor([rows], "int32")))
    inputs.append(relax.Var("logprobs", tensor([rows])))
    return _add(module, kernels, "top_logprobs", inputs, vocab_size, layout)


def _add(
    module: ir.IRModule,
    kernels: KernelSet,
    name: str,
    inputs: list[relax.Var],
    vocab_size: int,
    layout: StepLayout,
) -> ir.IRModule:
    """Add a function that calls the set's emitter and returns its results."""
    graph = Graph(module)
    builder = graph.builder
    with builder.function(name, inputs):
        with builder.dataflow():
            made = kernels.emit(name, graph, inputs, vocab_size, layout)
            result = builder.emit_output(relax.Tuple(made))
        builder.emit_func_output(result)
    return graph.finalize()


def add_adjust(
    module: ir.IRModule,
    kernels: KernelSet,
    vocab_size: int,
    layout: StepLayout,
    first_timestamp: int = 0,
) -> ir.IRModule:
    """adjust(logits f32[r, V], adjustments, last_sampled) -> logits, in place: called only if a row
    is adjusted. last_sampled is the previous step's, the same as for `forward`. first_timestamp: as
    in `AdjustLayout`."""
    graph = Graph(module)
    builder = graph.builder
    adjusting = replace(AdjustLayout.of(layout, vocab_size), first_timestamp=first_timestamp)
    logits = relax.Var("logits", tensor([size_variable("r"), vocab_size]))
    words = relax.Var("adjustments", tensor([adjusting.words], "int32"))
    last = relax.Var("last_sampled", tensor([size_variable("m")], "int32"))
    with builder.function("adjust", [logits, words, last]):
        with builder.dataflow():
            function = graph.add(kernels.kernel("adjust", adjusting), "adjust_rows")
            call = relax.op.call_tir_inplace(function, [logits, words, last], [0], logits.ty)
            result = builder.emit_output(call)
        builder.emit_func_output(result)
    return graph.finalize()


def add_copy_pages(
    module: ir.IRModule, kernels: KernelSet, caches: Caches, layout: StepLayout
) -> ir.IRModule:
    """copy_pages(step, sizes (c), caches) -> caches, written in place, every tensor."""
    graph = Graph(module)
    builder = graph.builder
    count, step = size_variable("c"), step_variable(layout)
    sizes = relax.Var("sizes", relax.ShapeType([count]))
    tensors = cache_variable(caches)
    with builder.function("copy_pages", [step, sizes, tensors]):
        with builder.dataflow():
            copied: list[relax.Var] = []
            for place, (group, kept) in enumerate(caches.tensors):
                kernel = kernels.kernel("copy_pages", kept, layout, group).with_attr(UPDATES, [1])
                function = graph.add(kernel, "copy_page_rows")
                old = builder.emit(relax.TupleGetItem(tensors, place))
                call = relax.op.call_tir_inplace(function, [step, old, count], [1], old.ty)
                copied.append(builder.emit(call))
            result = builder.emit_output(relax.Tuple(copied))
        builder.emit_func_output(result)
    return graph.finalize()


def add_interface(module: ir.IRModule, interface: str) -> ir.IRModule:
    """interface() -> hash of the manifest's numbers that the code was compiled for.

    For a module ready for code generation: its weights are known only then.
    """
    returns_text = relax.Function(
        [], relax.SeqExpr([], ir.StringImm(interface)), relax.ObjectType()
    )
    extended = ir.IRModule(module.functions, attrs=module.attrs)
    extended["interface"] = returns_text.with_attr("global_symbol", "interface")
    return extended
