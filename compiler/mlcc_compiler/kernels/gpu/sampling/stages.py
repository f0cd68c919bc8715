"""The stages of sampling: their order, their properties, and which rows need them.

The kernel has one loop over them, whose body serves all: differences are conditions on the number
of the stage. So its text is short, which matters where drivers compile slowly: see `sample.py`.
"""

from __future__ import annotations

from mlcc_compiler.ir._tvm import T, tirx
from mlcc_compiler.kernels.frame import Expr
from mlcc_compiler.kernels.gpu.sampling.partial import AHEAD
from mlcc_compiler.kernels.gpu.sampling.row import Row
from mlcc_compiler.kernels.gpu.workgroup import ceil_div, real

(
    SIGMA,
    FLOOR,
    TOP_K,
    MEAN,
    TYPICAL,
    TYPICAL_ENDS,
    NUCLEUS,
    TOP_P,
    MIN_P,
    EPSILON,
    ETA,
    XTC,
    XTC_ENDS,
    TEMPERATURE,
    SLICE,
    DRAW,
) = range(16)
"""In order: filters (`mlcc.engine.batch.filters`), of which typical-p has three, top-p and XTC
two, and what `search` does before top-k and before it draws."""

SEARCHES = (FLOOR, TOP_K, TYPICAL, TOP_P, SLICE, DRAW)
"""Stages that search for a place, digit by digit."""
MEASURES = (SIGMA, MEAN, EPSILON, ETA, XTC, TEMPERATURE)
"""Stages of one pass that sums."""
ENDS = (TYPICAL_ENDS, XTC_ENDS)
"""Stages of one pass that finds the ends of the remaining logits."""
SLICE_STAGES = (FLOOR, SLICE)
"""Stages over slices, from their statistics; the others are over logits."""
BY_KEY = (FLOOR, TOP_K, TOP_P)
"""Searches whose places are keys of logits."""
BY_INDEX = (SLICE, DRAW)
"""Searches whose places are indices, counted from the end."""
COUNTS = (SIGMA, FLOOR, TOP_K)
"""Stages in which each element has the same weight."""
BITS = 4
"""Bits of a search's digit."""
_KEY_BITS = 32


def among(stage: Expr, *stages: int) -> Expr:
    """Whether a stage is one of these."""
    if len(stages) == 1:
        return stage == stages[0]
    listed = T.int32(sum(1 << s for s in stages))
    return T.bitwise_and(T.shift_right(listed, stage), T.int32(1)) != 0


def index_bits(row: Row) -> int:
    """Bits of the index of a logit."""
    return max((row.vocab - 1).bit_length(), BITS)


def passes(row: Row, stage: Expr) -> Expr:
    """Number of passes of a stage; 0 if the row does not use it, or is greedy.

    From the parameters of the row alone: these are read-only, at an index that all threads share,
    so WGSL accepts a loop of that length as uniform, and barriers are allowed in it.
    """
    slice_bits = (row.slices.count - 1).bit_length()
    count = T.Select(among(stage, TYPICAL, *BY_KEY), _KEY_BITS // BITS, 1)
    count = T.Select(stage == SLICE, ceil_div(slice_bits, BITS), count)
    count = T.Select(stage == DRAW, ceil_div(index_bits(row), BITS), count)
    drawn = row.parameters["temperature"] > real(0)
    return T.Select(tirx.all(drawn, uses_stage(row, stage)), count, 0)


def uses_stage(row: Row, stage: Expr) -> Expr:
    """Whether a row needs a stage, from its parameters alone."""
    parameters, zero, one = row.parameters, real(0), real(1)
    return tirx.any(
        tirx.all(stage == SIGMA, parameters["top_n_sigma"] > zero),
        *_uses_slice_stage(row, stage),
        tirx.all(stage == TOP_K, parameters["top_k"] > 0, parameters["top_k"] < row.vocab),
        tirx.all(among(stage, MEAN, TYPICAL, TYPICAL_ENDS), parameters["typical_p"] < one),
        tirx.all(stage == TOP_P, parameters["top_p"] < one),
        tirx.all(stage == EPSILON, parameters["epsilon"] > zero),
        tirx.all(stage == ETA, parameters["eta"] > zero),
        tirx.all(among(stage, XTC, XTC_ENDS), parameters["xtc"] > zero),
        tirx.all(stage == TEMPERATURE, parameters["dynatemp_range"] > zero),
        stage == DRAW,
    )


def _uses_slice_stage(row: Row, stage: Expr) -> list[Expr]:
    """`uses_stage` for slice stages: top-k's only where some slices can be skipped and the row
    takes more than one round of the workgroup's loads."""
    found = [stage == SLICE] if row.slices.count > 1 else []
    if row.vocab > row.gpu.threads * AHEAD:
        few = tirx.all(row.parameters["top_k"] > 0, row.parameters["top_k"] < row.slices.count)
        found.append(tirx.all(stage == FLOOR, few))
    return found
