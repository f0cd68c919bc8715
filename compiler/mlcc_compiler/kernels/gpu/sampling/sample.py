"""Sampling one token per row of logits: filters, temperature, inverse CDF; or argmax.

Two launches. In the first, many workgroups read a row, each logit once, and compute for every slice
of it the largest logit and two sums (`partial.py`). In the second, a workgroup a row uses these
statistics and reads again only slices that can matter (`candidate_set.py`). The filters and their
order are `mlcc.engine.batch.filters`.

Nothing is sorted: one search, digit by digit of four bits, is used six times. Among elements of a
row, ordered by an integer (their place), it finds the one at which the sum of weights from the
highest place down reaches a goal:

    stage    elements  place                       weight  goal                 passes, at most
    floor    slices    their largest logit         1       top_k                8
    top-k    logits    the logit, as an integer    1       top_k                8
    typical  logits    nearness to the mean logit  mass    typical_p * all mass 8
    top-p    logits    the logit, as an integer    mass    top_p * all mass     8
    slice    slices    the index, from the end     mass    uniform * all mass   ceil(log16(slices))
    draw     logits    the index, from the end     mass    uniform * all mass   ceil(log16(vocab))

Draws use the mass that remains after filtering. The other filters are one summing pass each
(`filters.py`), typical-p and XTC one more that finds limits. A pass adds up the weights by digit;
the next one continues within one digit.

Slices read again, for a row of V logits in slices of s:
- greedy: one slice, for the index of its largest.
- drawn without filters: the slice stage finds the slice by the sums; 1.07 s are read on average.
- top-k: floor finds the k-th largest of the slices' largest logits, a lower bound of top-k's
  threshold: at most k slices have anything above it, and all later stages read no others.
- top-p alone: logits so low that V of them had half the mass to drop cannot be its threshold, so
  slices of only those are skipped; as digits are found, more are.
- any other filter reads what the limits of those before it left: at worst the whole row in each
  pass.

All stages (`stages.py`) share one loop, and each operation is written in it once: the list of
slices, the loads, the sums by digit, the key of a threshold. Code size matters: with the search
inlined at each use, SwiftShader, which browsers without a GPU have, took 94 seconds to compile;
this form takes as long as a kernel of a single launch.

WebGPU allows barriers only where control flow is uniform by its own analysis. A stage's number of
passes may depend on the row's parameters, so unused stages cost nothing; it may not depend on sums,
so a pass after the search has ended is barriers without work.

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
    """The kernel of `sample_arguments`, with the slice statistics as last argument: u32[r,
    *Slices.stats_shape]. A row whose largest logit is infinite has no masses: it gives the first
    such logit, and an undefined logprob."""
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

    return kernel(
        body, **sample_arguments(vocab, layout), slice_stats=u32("r", *slices.stats_shape)
    )
