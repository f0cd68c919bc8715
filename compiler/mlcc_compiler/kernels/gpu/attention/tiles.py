"""The launch of a prefill: a workgroup for each tile of query tokens of one sequence."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from mlcc_compiler.ir._tvm import T, tirx
from mlcc_compiler.kernels.frame import Expr, store
from mlcc_compiler.kernels.gpu.attention.sequences import (
    PagedSequence,
    PagedSequences,
    split,
    strided,
)
from mlcc_compiler.kernels.gpu.workgroup import bind, int32, launch, real, when


class TileSizes(Protocol):
    """Tile sizes that a launch needs."""

    @property
    def threads(self) -> int: ...

    @property
    def tokens(self) -> int:
        """Query tokens of a tile."""

    @property
    def heads(self) -> int:
        """Query heads of a token in the tile."""


Tile = Callable[[PagedSequence, Expr, Expr, Expr, Expr], None]
"""(sequence, its first token in the tile, tokens, part of the heads, thread)."""


def each_tile(
    sequences: PagedSequences, sizes: TileSizes, parts: int, most: Expr, out: Expr, tile: Tile
) -> None:
    """Emit the launch of `tile` for the sequences with several tokens, whose heads are `parts`
    parts; for at most `most` sequences. It fills out f32[n, heads, dim].

    Tokens after the last sequence, which surplus workgroups handle, get zeros.
    """

    def first_item(s: Expr) -> Expr:
        return tirx.truncdiv(sequences.first_token(s), sizes.tokens) + s

    items = tirx.floordiv(out.shape[0], sizes.tokens) + most + 1
    with launch((items, parts), (sizes.threads,)) as (item, part, thread):
        used = bind(first_item(sequences.count))
        with T.If(item < used):
            with T.Then():
                sequence = sequences.of(sequences.find(first_item, item))
                start = bind((item - first_item(sequence.index)) * sizes.tokens)
                count = bind(T.min(sequence.tokens - start, sizes.tokens))
                with when(tirx.all(sequence.tokens > 1, count > 0)):
                    tile(sequence, start, count, part, thread)
            with T.Else():
                behind = bind(sequences.tokens + (item - used) * sizes.tokens)
                _clear(sizes, out, behind, bind(part * sizes.heads), thread)


def _clear(sizes: TileSizes, out: Expr, token: Expr, head: Expr, thread: Expr) -> None:
    """Zeros for a tile of tokens."""
    dim = int(out.shape[2])
    left = bind(T.min(int32(out.shape[0]) - token, sizes.tokens))

    def element(i: Expr) -> None:
        row, d = split(i, dim)
        t, h = split(row, sizes.heads)
        store(out, real(0), token + t, head + h, d)

    strided(left * (sizes.heads * dim), sizes.threads, thread, element)
