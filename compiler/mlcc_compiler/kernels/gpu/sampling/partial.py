"""The first of sampling's two launches: statistics of the slices of each row of logits.

Per slice: the key of its largest logit, the sum of exponentials relative to that, and the same at
the row's temperature. Many workgroups read a row at once, each logit once; the second launch
(`sample.py`) has one workgroup a row, which reads again only the slices that can matter.

A slice belongs to a team of threads, neighbours to neighbours. How rows are cut depends on the
vocabulary and the target's row alone, so results repeat to the bit.
"""

from __future__ import annotations

from dataclasses import dataclass

from mlcc_compiler.ir._tvm import T
from mlcc_compiler.kernels.frame import Expr, store
from mlcc_compiler.kernels.gpu.device import Gpu
from mlcc_compiler.kernels.gpu.sampling.ordered_floats import (
    NO_KEY,
    inverse_of,
    logit,
    ordered_bits,
    safe_exp,
)
from mlcc_compiler.kernels.gpu.workgroup import (
    Local,
    add,
    bind,
    ceil_div,
    int32,
    largest,
    launch,
    real,
    reduce,
    when,
)
from mlcc_compiler.kernels.step import Step

AHEAD = 8
"""Loads in flight per thread, to hide memory latency."""
LEAST = 256
"""Minimum logits of a slice: a kilobyte, so that reading single slices is efficient."""
KEY, SUM, TEMPERED = range(3)
"""The planes of the statistics: the key of the largest logit, and the bits of two sums."""


@dataclass(frozen=True)
class Slices:
    """How a row of `vocab` logits is cut."""

    vocab: int
    size: int
    """Logits of a slice; the last one may have fewer."""

    @classmethod
    def of(cls, gpu: Gpu, vocab: int) -> Slices:
        """At most as many slices as the device's row allows, unless a workgroup cannot read larger
        ones."""
        size = LEAST
        while ceil_div(vocab, size) > gpu.row_slices and size < gpu.threads * AHEAD:
            size *= 2
        return cls(vocab, size)

    @property
    def count(self) -> int:
        """Slices of a row."""
        return -(-self.vocab // self.size)

    @property
    def stats_shape(self) -> tuple[int, int]:
        """Shape of a row's statistics: u32."""
        return (TEMPERED + 1, self.count)

    @property
    def lanes(self) -> int:
        """Threads that read a slice."""
        return self.size // AHEAD


def measure_slices(gpu: Gpu, slices: Slices, logits: Expr, step: Step, slice_stats: Expr) -> None:
    """Emit the launch that fills `slice_stats`, u32[r, *slices.stats_shape]."""
    teams = gpu.threads // slices.lanes
    grid = (logits.shape[0], ceil_div(slices.count, teams))
    with (
        launch(grid, (gpu.threads,)) as (row, block, thread),
        when(row < step.count("rows")),
    ):
        team, lane = bind(thread // slices.lanes), bind(thread % slices.lanes)
        place = bind(block * teams + team)
        xs, keys = _loads(slices, logits, row, place, lane)
        sizes = (lane, slices.lanes, team, teams)
        key = Local(1, "uint32")
        key[0] = T.uint32(0)
        with T.serial(AHEAD) as u:
            key[0] = T.max(key[0], keys[u])
        top_key = reduce(gpu, bind(key[0]), largest, *sizes)
        top, inverse = logit(top_key), inverse_of(bind(step.row(row, "temperature")))
        total, heated = Local(), Local()
        total[0], heated[0] = real(0), real(0)
        with T.serial(AHEAD) as u, when(keys[u] > T.uint32(NO_KEY)):
            below = bind(xs[u] - top)
            total[0] = total[0] + safe_exp(below)
            heated[0] = heated[0] + safe_exp(below * inverse)
        sums = [reduce(gpu, bind(value[0]), add, *sizes) for value in (total, heated)]
        with when(place < slices.count), when(lane == 0):
            store(slice_stats, top_key, row, KEY, place)
            store(slice_stats, T.reinterpret("uint32", sums[0]), row, SUM, place)
            store(slice_stats, T.reinterpret("uint32", sums[1]), row, TEMPERED, place)


def _loads(slices: Slices, logits: Expr, row: Expr, place: Expr, lane: Expr) -> tuple[Local, Local]:
    """(logits, their keys) of a thread in a slice; the key is 0 past the end."""
    xs, keys = Local(AHEAD), Local(AHEAD, "uint32")
    first = bind(place * slices.size + lane)
    for u in range(AHEAD):
        xs[u] = logits[row, T.min(first + u * slices.lanes, slices.vocab - 1)]
    with T.serial(AHEAD) as u:
        index = bind(first + int32(u) * slices.lanes)
        keys[u] = T.Select(index < slices.vocab, ordered_bits(bind(xs[u])), T.uint32(0))
    return xs, keys
