"""Sampling one token per row of logits: filters, temperature, inverse CDF; or argmax.

Two launches. In the first many workgroups read a row, each logit once, and tell of every slice of
it the largest logit and two sums (`slices`). In the second a workgroup a row takes what it can from
those, and reads again only slices that can matter (`live`). Which filters there are and their
order: `mlcc.engine.batch.filters`.

Nothing is sorted: one search, digit by digit of four bits, is used six times. It looks in elements
of a row, ordered by an integer (their place), for the one at which the sum of weights from the
highest place down reaches a goal:

    stage    elements  place                       weight  goal                 passes, at most
    floor    slices    their largest logit         1       top_k                8
    top-k    logits    the logit, as an integer    1       top_k                8
    typical  logits    nearness to the mean logit  mass    typical_p * all mass 8
    top-p    logits    the logit, as an integer    mass    top_p * all mass     8
    slice    slices    the index, from the end     mass    uniform * all mass   ceil(log16(slices))
    draw     logits    the index, from the end     mass    uniform * all mass   ceil(log16(vocab))

The mass of draws is that of what filters left. The other filters are a pass each that adds up
(`kept`), typical-p and XTC one more that finds ends. A pass adds up the weights by digit; the next
looks within one digit.

What is read again, of a row of V logits in slices of s:
- greedy: one slice, for the index of its largest.
- drawn without filters: the slice stage finds the slice by the sums told; 1.07 s are read of it.
- top-k: floor finds the k-th largest of the slices' largest logits, which top-k's own cannot be
  below: k slices at most have anything above it, and all later stages read no others.
- top-p alone: logits so low that V of them had half the mass to drop cannot be its edge, so slices
  of nothing but those are left out; as digits are found, more are.
- any other filter reads what the limits of those before it left: at worst the row, as often as it
  has passes.

All stages (`stages`) share one loop, and each thing they do is written in it once: the list of
slices, the loads, the sums by digit, the image of a threshold. Text is what costs: written out
where it was used, the same search took SwiftShader, which browsers without a GPU have, 94 seconds
to compile; like this it takes what a single launch's kernel did.

WebGPU allows barriers only where control flow is uniform by its own analysis. A stage's number of
passes may depend on the row's parameters, so stages that a row does not use cost nothing; it may
not depend on sums, so a pass after the search has ended is barriers and no work.

Masses are float32, added in an order fixed by the number of threads, so tokens repeat to the bit.
Against exact arithmetic the boundary between two tokens was off by up to 2e-7 of the whole mass.
"""

from __future__ import annotations

from typing import Any

from mlcc.engine.batch.tables import StepLayout
from mlcc_compiler.ir._tvm import T
from mlcc_compiler.ir.graph import Graph, dims, tensor
from mlcc_compiler.kernels.frame import Expr, PrimFunc, kernel, store, u32
from mlcc_compiler.kernels.gpu.device import Gpu
from mlcc_compiler.kernels.gpu.sampling.partial import Slices, measure_slices
from mlcc_compiler.kernels.gpu.sampling.row import Row
from mlcc_compiler.kernels.gpu.sampling.search import Search
from mlcc_compiler.kernels.gpu.workgroup import bind, launch, when
from mlcc_compiler.kernels.kernel_set import KernelSet
from mlcc_compiler.kernels.step import Step
from mlcc_compiler.kernels.step_arguments import sample_arguments


def emit_sample(
    kernels: KernelSet, graph: Graph, inputs: list[Any], vocab: int, layout: StepLayout
) -> list[Any]:
    """Emit the kernel of `sample_arguments`; returns its tokens and logprobs."""
    rows, slice_stats = dims(inputs[0])[0], Slices.of(kernels.device, vocab).stats_shape
    out = [tensor([rows], "int32"), tensor([rows]), tensor([rows, *slice_stats], "uint32")]
    made = kernels.cached_kernel(sample, vocab, layout)
    return graph.items(graph.call_tir(made, "sample_rows", inputs, out), 3)[:2]


def sample(gpu: Gpu, vocab: int, layout: StepLayout) -> PrimFunc:
    """The kernel of `sample_arguments`, with what is told of slices for a last argument: u32[r,
    *Slices.told]. A row whose largest logit is infinite has no masses: it gives the first such, and
    its logprob means nothing."""
    slices = Slices.of(gpu, vocab)

    def body(logits: Expr, words: Expr, tokens: Expr, logprobs: Expr, slice_stats: Expr) -> None:
        step = Step(layout, words)
        measure_slices(gpu, slices, logits, step, slice_stats)
        with (
            launch((logits.shape[0],), (gpu.threads,)) as (i, thread),
            when(i < step.count("rows")),
        ):
            row = Row(gpu, logits, step, slice_stats, i, thread)
            search = Search(row)
            search.emit()
            with when(thread == 0):
                given = step.row(i, "given")
                token = bind(
                    T.Select(given >= 0, T.min(given, T.int32(vocab - 1)), search.token[0])
                )
                store(tokens, token, i)
                store(logprobs, logits[i, token] - row.top - T.log(row.total), i)

    return kernel(body, **sample_arguments(vocab, layout), told=u32("r", *slices.stats_shape))
