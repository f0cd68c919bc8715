"""Sampling one token per row of logits: filters, temperature, inverse CDF; or argmax.

A workgroup per row. Which filters there are and their order: `mlcc.engine.filters`. Nothing is
sorted: one search, digit by digit of four bits, is used four times. It looks in the elements of a
row, ordered by an integer (their place), for the one at which the sum of weights from the highest
place down reaches a goal:

    stage    place                       weight             goal                 passes
    top-k    the logit, as an integer    1                  top_k                8
    typical  nearness to the mean logit  mass               typical_p * all mass 8
    top-p    the logit, as an integer    mass               top_p * all mass     8
    draw     the index, from the end     mass of what's     uniform * all        ceil(log16(vocab))
                                         left by filters    mass

The other filters are a pass each that adds up (`kept`), typical-p and XTC one more that finds ends.

A pass reads the row once and adds up the weights by digit; the next looks within one digit. Before
them, one pass finds the largest logit and the sum of the exponentials, with a running maximum
(Milakov & Gimelshein, 2018). So a greedy row is read once; top-k and top-p add at most 8 reads
each, fewer once a digit holds one element alone; drawing adds 1.07, as each of its passes reads a
sixteenth of the one before. After the first read the row comes from the GPU's cache (it has 513 KB
at a vocabulary of 128,256).

WebGPU allows barriers only where control flow is uniform by its own analysis. A stage's number of
passes may depend on the row's parameters, so stages that a row does not use cost nothing; it may
not depend on sums, so a pass after the search has ended is five barriers and no work.

Masses are float32, added in an order fixed by the number of threads, so tokens repeat to the bit.
Against exact arithmetic the boundary between two tokens was off by up to 2e-7 of the whole mass.
"""

from __future__ import annotations

from mlcc.engine.tables import StepLayout
from mlcc_compiler._tvm import T
from mlcc_compiler.kernels.frame import Expr, PrimFunc, kernel, store
from mlcc_compiler.kernels.gpu.device import Gpu
from mlcc_compiler.kernels.gpu.sample.row import Row
from mlcc_compiler.kernels.gpu.sample.search import Search
from mlcc_compiler.kernels.gpu.workgroup import bind, launch, when
from mlcc_compiler.kernels.step import Step
from mlcc_compiler.kernels.step_arguments import sample_arguments


def sample(gpu: Gpu, vocab: int, layout: StepLayout) -> PrimFunc:
    """The kernel of `sample_arguments`. A row whose largest logit is infinite has no masses: it
    gives the first such, and its logprob means nothing."""

    def body(logits: Expr, words: Expr, tokens: Expr, logprobs: Expr) -> None:
        step = Step(layout, words)
        with (
            launch((logits.shape[0],), (gpu.threads,)) as (i, thread),
            when(i < step.count("rows")),
        ):
            row = Row(gpu, logits, step, i, thread)
            search = Search(row)
            search.emit()
            with when(thread == 0):
                given = step.row(i, "given")
                token = bind(
                    T.Select(given >= 0, T.min(given, T.int32(vocab - 1)), search.token[0])
                )
                store(tokens, token, i)
                store(logprobs, logits[i, token] - row.top - T.log(row.total), i)

    return kernel(body, **sample_arguments(vocab, layout))
