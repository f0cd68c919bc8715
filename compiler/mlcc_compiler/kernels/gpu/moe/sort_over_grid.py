"""`expert_order` by as many workgroups as there are experts, for NVIDIA GPUs from sm_80 on.

A stable counting sort in one launch: every workgroup counts all choices in its own memory, which
tells it where the entries of its expert begin, and then writes those entries. Its warps take
neighbouring parts of the entries, 32 at a time; a vote of a warp says which are the expert's. No
workgroup waits for another, and the order is the one of `sort_tokens.py`, to the entry.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from mlcc_compiler.ir._tvm import T, tirx
from mlcc_compiler.kernels.frame import Expr, PrimFunc, i32, kernel, store
from mlcc_compiler.kernels.gpu.device import Gpu
from mlcc_compiler.kernels.gpu.workgroup import (
    Local,
    add,
    barrier,
    bind,
    ceil_div,
    int32,
    launch,
    reduce,
    shared,
    when,
)

_LANES, _WARPS = 32, 8
THREADS = _LANES * _WARPS
AHEAD = 4
"""Loads that a lane has on their way at a time."""

_BALLOT = """
__device__ __forceinline__ unsigned mlcc_ballot(int yes) {
  return __ballot_sync(0xFFFFFFFFu, yes);
}
"""
_COUNT = """
__device__ __forceinline__ void mlcc_count(int* cell) {
  atomicAdd(cell, 1);
}
"""


def expert_order_over_grid(
    gpu: Gpu, experts: int, k: int, heights: tuple[int, ...], few: int = 0
) -> PrimFunc:
    """(choice i32[n, k]) -> order and begin of `sort_tokens.expert_order`. Up to `few` tokens, for
    which nothing reads them, nothing is launched."""

    def body(choice: Expr, order: Expr, begin: Expr) -> None:
        tokens = choice.shape[0]
        with (
            when(tokens > few) if few else contextlib.nullcontext(),
            launch((experts,), (_LANES, _WARPS)) as (expert, lane, warp),
        ):
            entries = bind(int32(tokens) * k)
            work = _Entries(choice, entries, bind(ceil_div(entries, THREADS * AHEAD)), lane, warp)
            counts, of_warps = shared((experts,), "int32"), shared((_WARPS,), "int32")
            thread = bind(warp * _LANES + lane)
            for first in range(0, experts, THREADS):
                with when(first + thread < experts):
                    store(counts, T.int32(0), first + thread)
            barrier()
            own = _count(work, counts, expert)
            with when(lane == 0):
                store(of_warps, own, warp)
            barrier()
            before = _sums_before(gpu, counts, experts, expert, lane, (1, *heights))
            with when(thread == 0):
                for row, (height, total) in enumerate(zip((1, *heights), before, strict=True)):
                    store(begin, total, row, expert)
                    with when(expert == experts - 1):
                        last = total + ceil_div(bind(counts[expert]), height)
                        store(begin, last, row, experts)
            at = Local(1, "int32")
            at[0] = before[0]
            for other in range(_WARPS - 1):
                at[0] = at[0] + T.Select(warp > other, of_warps[other], T.int32(0))
            _write(work, order, expert, at)

    table = i32(1 + len(heights), experts + 1)
    return kernel(body, choice=i32("n", k), order=i32("n", k), begin=table)


class _Entries:
    """A warp's part of the entries, `steps` times `AHEAD` times 32."""

    def __init__(self, choice: Any, entries: Expr, steps: Expr, lane: Expr, warp: Expr) -> None:
        self.choice, self.entries, self.steps, self.lane = choice, entries, steps, lane
        self.first = bind(warp * steps * (_LANES * AHEAD) + lane)

    def each(self, body: Callable[[Expr, Expr], None]) -> None:
        """Emit body(entry, its expert or -1 beyond the last) for each of a lane's entries; all
        lanes of the warp call it together."""
        with T.serial(self.steps) as step:
            first = bind(self.first + int32(step) * (_LANES * AHEAD))
            found = []
            for i in range(AHEAD):
                entry = bind(first + i * _LANES)
                inside = entry < self.entries
                chosen = bind(T.if_then_else(inside, self.choice[0, entry], T.int32(-1)))
                found.append((entry, chosen))
            for entry, chosen in found:
                body(entry, chosen)


def _count(work: _Entries, counts: Any, expert: Expr) -> Expr:
    """Add the entries to the counts of all experts; this warp's of `expert` are returned."""
    own = Local(1, "int32")
    own[0] = T.int32(0)

    def body(entry: Expr, chosen: Expr) -> None:
        with when(chosen >= 0):
            source = T.address_of(counts[tirx.max(chosen, 0)])
            T.evaluate(T.cuda.func_call("mlcc_count", source, source_code=_COUNT))
        own[0] = own[0] + _ones(_ballot(chosen == expert))

    work.each(body)
    return own[0]


def _sums_before(
    gpu: Gpu, counts: Any, experts: int, expert: Expr, lane: Expr, heights: tuple[int, ...]
) -> list[Expr]:
    """Emit the sums of ceil(count / height) of the experts before this one; each warp for itself,
    without a barrier."""
    totals = [Local(1, "int32") for _ in heights]
    for total in totals:
        total[0] = T.int32(0)
    for first in range(0, experts, _LANES):
        other = bind(first + lane)
        with when(tirx.all(other < expert, other < experts)):
            count = bind(counts[other])
            for total, height in zip(totals, heights, strict=True):
                total[0] = total[0] + ceil_div(count, height)
    return [reduce(gpu, total[0], add, lane, _LANES) for total in totals]


def _write(work: _Entries, order: Any, expert: Expr, at: Local) -> None:
    """Write the expert's entries from place `at` on, in ascending order."""

    def body(entry: Expr, chosen: Expr) -> None:
        mine = chosen == expert
        votes = _ballot(mine)
        before = T.bitwise_and(votes, (T.uint32(1) << work.lane.astype("uint32")) - T.uint32(1))
        with when(mine):
            store(order, entry, 0, at[0] + _ones(before))
        at[0] = at[0] + _ones(votes)

    work.each(body)


def _ballot(yes: Expr) -> Expr:
    """A bit for each lane of the warp, all of which must call it."""
    number = T.Select(yes, T.int32(1), T.int32(0))
    return bind(T.cuda.func_call("mlcc_ballot", number, source_code=_BALLOT, return_type="uint32"))


def _ones(word: Expr) -> Expr:
    return T.popcount(word).astype("int32")
