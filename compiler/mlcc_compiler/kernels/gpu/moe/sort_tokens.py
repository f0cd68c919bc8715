"""Sorts tokens by expert, for kernels that process many tokens of an expert at once.

An entry is a token's j-th choice, number token * k + j. Tiles of one height belong to one expert
each; a table has the starts of each expert's entries and tiles.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mlcc_compiler.ir._tvm import T, tirx
from mlcc_compiler.kernels.frame import Expr, PrimFunc, i32, kernel, store
from mlcc_compiler.kernels.gpu.device import Gpu
from mlcc_compiler.kernels.gpu.workgroup import (
    Local,
    barrier,
    bind,
    ceil_div,
    int32,
    launch,
    shared,
    when,
)


def expert_order(gpu: Gpu, experts: int, k: int, heights: tuple[int, ...]) -> PrimFunc:
    """(choice i32[n, k]) -> order i32[n, k], the entries by expert, and begin i32[1 + heights,
    experts + 1]: expert e's entries are begin[0, e] to begin[0, e + 1] of the order, its tiles of
    the first height begin[1, e] to begin[1, e + 1], and so on.

    One workgroup, a thread an expert, each of which reads all choices twice.
    """
    threads = gpu.threads

    def body(choice: Expr, order: Expr, begin: Expr) -> None:
        entries = int32(choice.shape[0]) * k
        with launch((1,), (threads,)) as (_, thread):
            counts = shared((experts,), "int32")
            for e in _own(experts, threads, thread):
                count = Local(1, "int32")
                count[0] = T.int32(0)
                _each_place(choice, k, entries, e, lambda entry, c=count: _add(c, 1))
                with when(e < experts):
                    store(counts, count[0], e)
            barrier()
            for e in _own(experts, threads, thread):
                before = [Local(1, "int32") for _ in range(1 + len(heights))]
                for cell in before:
                    cell[0] = T.int32(0)
                with T.serial(experts) as other, when(int32(other) < e):
                    count = bind(counts[int32(other)])
                    for cell, height in zip(before, (1, *heights), strict=True):
                        _add(cell, ceil_div(count, height))
                with when(e < experts):
                    count = bind(counts[e])
                    for row, (cell, height) in enumerate(zip(before, (1, *heights), strict=True)):
                        store(begin, cell[0], row, e)
                        with when(e == experts - 1):
                            store(begin, cell[0] + ceil_div(count, height), row, experts)
                at = before[0]

                def put(entry: Expr, at: Local = at) -> None:
                    store(order, entry, *divmod_positive(at[0], k))
                    _add(at, 1)

                _each_place(choice, k, entries, e, put)

    table = i32(1 + len(heights), experts + 1)
    return kernel(body, choice=i32("n", k), order=i32("n", k), begin=table)


def _own(experts: int, threads: int, thread: Expr) -> list[Expr]:
    """This thread's experts; the last may be out of range."""
    return [bind(thread + i) for i in range(0, experts, threads)]


def _each_place(choice: Any, k: int, entries: Expr, expert: Expr, body: Any) -> None:
    """Emit body(entry) for the entries of an expert."""
    with T.serial(entries) as i:
        entry = bind(int32(i))
        with when(choice[divmod_positive(entry, k)] == expert):
            body(entry)


def divmod_positive(entry: Expr, k: int) -> tuple[Expr, Expr]:
    """Emit quotient and remainder; for an entry and k, the token and its choice number.

    For place >= 0, which TVM does not know: its own `//` would overflow.
    """
    return bind(tirx.truncdiv(entry, k)), bind(tirx.truncmod(entry, k))


def _add(cell: Local, value: Expr) -> None:
    cell[0] = cell[0] + value


@dataclass(frozen=True)
class ExpertTile:
    """Tile number `tile` of a height: its expert, the first of its entries in the order, and their
    number, which is 0 or less beyond the last tile."""

    expert: Expr
    first: Expr
    count: Expr


def find_tile(begin: Any, row: int, height: int, experts: int, tile: Expr) -> ExpertTile:
    """Emit the search in `begin`, whose row `row` is for tiles of that height."""
    low, high = Local(1, "int32"), Local(1, "int32")
    low[0], high[0] = T.int32(0), int32(experts)
    for _ in range((experts - 1).bit_length()):
        middle = bind((low[0] + high[0]) // 2)
        below = bind(begin[row, middle] <= tile)
        low[0] = T.Select(below, middle, low[0])
        high[0] = T.Select(below, high[0], middle)
    expert = bind(low[0])
    first = bind(begin[0, expert] + (tile - begin[row, expert]) * height)
    return ExpertTile(expert, first, bind(begin[0, expert + 1] - first))
