"""The most likely tokens of rows that request them, with their log-probabilities.

Two launches, as in `sample.py`: slice statistics (`partial.py`), then a workgroup a row. For each
token it takes the slice with the largest remaining logit, reads that one slice, and updates its
largest. The number of passes is the row's request, which is read-only: WebGPU allows barriers
there.
"""

from __future__ import annotations

from typing import Any

from mlcc.engine.batch.tables import MOST_TOP_LOGPROBS, StepLayout
from mlcc_compiler.ir._tvm import T, tirx
from mlcc_compiler.ir.graph import Graph, dims, tensor
from mlcc_compiler.kernels.frame import Expr, PrimFunc, kernel, store, u32
from mlcc_compiler.kernels.gpu.device import Gpu
from mlcc_compiler.kernels.gpu.sampling.candidate_set import CandidateSet
from mlcc_compiler.kernels.gpu.sampling.ordered_floats import NO_KEY
from mlcc_compiler.kernels.gpu.sampling.partial import Slices, measure_slices
from mlcc_compiler.kernels.gpu.sampling.row import NO_INDEX, RowReader
from mlcc_compiler.kernels.gpu.workgroup import Local, bind, int32, largest, launch, real, when
from mlcc_compiler.kernels.kernel_set import KernelSet
from mlcc_compiler.kernels.step import Step
from mlcc_compiler.kernels.step_arguments import top_logprobs_arguments


def emit_top_logprobs(
    kernels: KernelSet, graph: Graph, inputs: list[Any], vocab: int, layout: StepLayout
) -> list[Any]:
    """Emit the kernel of `top_logprobs_arguments`; returns its tokens and logprobs."""
    rows, slice_stats = dims(inputs[0])[0], Slices.of(kernels.device, vocab).stats_shape
    shape = [rows, MOST_TOP_LOGPROBS]
    out = [tensor(shape, "int32"), tensor(shape), tensor([rows, *slice_stats], "uint32")]
    made = kernels.cached_kernel(top_logprobs, vocab, layout)
    return graph.items(graph.call_tir(made, "top_logprobs_rows", inputs, out), 3)[:2]


def top_logprobs(gpu: Gpu, vocab: int, layout: StepLayout) -> PrimFunc:
    """The kernel of `top_logprobs_arguments`, with the slice statistics as last argument."""
    most, slices = MOST_TOP_LOGPROBS, Slices.of(gpu, vocab)

    def body(
        logits: Expr,
        words: Expr,
        ids: Expr,
        known: Expr,
        tokens: Expr,
        logprobs: Expr,
        slice_stats: Expr,
    ) -> None:
        step = Step(layout, words)
        measure_slices(gpu, slices, logits, step, slice_stats)
        with (
            launch((logits.shape[0],), (gpu.threads,)) as (i, thread),
            when(i < step.count("rows")),
        ):
            wanted = bind(T.min(step.row(i, "top_logprobs"), most))
            with when(tirx.all(thread >= wanted, thread < most)):
                store(tokens, T.int32(-1), i, thread)
                store(logprobs, real(0), i, thread)
            row = RowReader(gpu, logits, slices, i, thread)
            candidates = CandidateSet(gpu, slices, slice_stats, i, thread)
            last_key, last = Local(1, "uint32"), Local(1, "int32")
            last_key[0], last[0] = T.uint32(0xFFFFFFFF), T.int32(-1)
            with T.serial(wanted) as j:
                last_key[0], last[0] = _next(row, candidates, bind(last_key[0]), bind(last[0]))
                with when(thread == 0):
                    found = bind(last_key[0]) > T.uint32(NO_KEY)
                    store(tokens, T.Select(found, last[0], T.int32(-1)), i, int32(j))
                    x = logits[i, T.Select(found, last[0], 0)] - logits[i, ids[i]] + known[i]
                    store(logprobs, T.Select(found, x, real(0)), i, int32(j))

    arguments = top_logprobs_arguments(vocab, layout)
    return kernel(body, **arguments, slice_stats=u32("r", *slices.stats_shape))


def _next(
    row: RowReader, candidates: CandidateSet, last_key: Expr, last: Expr
) -> tuple[Expr, Expr]:
    """(key, index) of the best logit after the last one found; updates its slice's best."""
    key, place = candidates.best_of_own()
    top_key, place = row.best_of(key, place)
    index, later = Local(1, "int32"), Local(1, "uint32")
    index[0], later[0] = T.int32(NO_INDEX), T.uint32(0)

    def find(i: Expr, k: Expr) -> None:
        behind = tirx.any(k < last_key, tirx.all(k == last_key, i > last))
        with when(tirx.all(k == top_key, behind)):
            index[0] = T.min(index[0], i)

    row.in_slice(place, find)
    first = row.over_threads(index[0], lambda a, b: T.min(a, b))

    def follow(i: Expr, k: Expr) -> None:
        with when(tirx.any(k < top_key, tirx.all(k == top_key, i > first))):
            later[0] = T.max(later[0], k)

    row.in_slice(place, follow)
    candidates.update_best(place, row.over_threads(later[0], largest))
    return top_key, first
