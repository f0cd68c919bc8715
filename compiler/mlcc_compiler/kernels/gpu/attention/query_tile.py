"""A tile of a sequence's query tokens: which keys each of them sees, and where those lie."""

from __future__ import annotations

from dataclasses import dataclass

from mlcc_compiler.ir._tvm import T
from mlcc_compiler.ir.layout import AttentionShape
from mlcc_compiler.kernels.frame import Expr, store
from mlcc_compiler.kernels.gpu.attention.sequences import (
    PagedSequence,
    PagedSequences,
    first_key,
    split,
    strided,
)
from mlcc_compiler.kernels.gpu.workgroup import Local, bind, int32

_FAR = 1 << 30
"""A position that is outside every query's window."""


@dataclass(frozen=True)
class Bounds:
    """What a query row sees: its position, its last key, and how many keys up to it, if bounded."""

    position: Expr
    last: Expr
    width: Expr | int | None


class QueryTile:
    """`count` tokens of a sequence, from its token `start` on, `heads` query heads of each."""

    def __init__(
        self,
        sequences: PagedSequences,
        sequence: PagedSequence,
        start: Expr,
        count: Expr,
        heads: int,
    ) -> None:
        self.shape, self.heads = sequences.shape, heads
        self.sequences, self.sequence, self.count = sequences, sequence, count
        self.token = bind(sequence.token + start)
        self.position = bind(sequence.keys - sequence.tokens + start)
        self.end = _end(self.shape, bind(self.position + count), sequence.keys)
        if self.shape.visible_until:
            self.end = self._visible_end()

    def first_key(self) -> Expr:
        """The first key that any of the tokens sees."""
        if not self.shape.visible_from:
            return bind(first_key(self.shape, self.position))
        first = Local(1, "int32")
        first[0] = self._first_seen(T.int32(0))
        with T.serial(self.count) as t:
            first[0] = T.min(first[0], self._first_seen(int32(t)))
        return bind(first[0])

    def locate(self, rows: Expr, begin: Expr, kv_head: Expr, threads: int, thread: Expr) -> None:
        """Emit rows[i] = the row in the pages of key `begin` + i; past the end, the last key's."""

        def place(i: Expr) -> None:
            key = bind(T.min(begin + i, self.end - 1))
            store(rows, self.sequences.key_row(self.sequence, key, kv_head), i)

        strided(int(rows.shape[0]), threads, thread, place)

    def key(self, j: Expr) -> Expr:
        """The position of key j; not causal, it is far from all queries past the last one."""
        if self.shape.causal:
            return j
        return bind(T.if_then_else(j < self.end, j, T.int32(_FAR)))

    def bounds(self, row: Expr) -> Bounds:
        """The bounds of a query row: the tokens' heads, one token after the other."""
        token = bind(split(row, self.heads)[0])
        position = last = bind(self.position + token)
        width: Expr | int | None = self.shape.window
        if self.shape.visible_until:
            own = bind(T.min(token, self.count - 1))
            last = bind(self._last_seen(own))
            if self.shape.visible_from:
                width = bind(last + 1 - self._first_seen(own))
            elif width is not None:
                width = bind(width + (last - position))
        return Bounds(position, last, width)

    def sees(self, bounds: Bounds, key: Expr) -> Expr:
        """Whether a query of these bounds sees a `key`.

        Both bounds in one comparison: later keys are far away as unsigned numbers. (With an `and`
        in each of these SwiftShader compiles for minutes, in 16 GB.)
        """
        if not self.shape.causal:
            near = _FAR // 2 if self.shape.window is None else self.shape.window
            away = T.Cast("uint32", bounds.position - key + (near - 1))
            return away < T.uint32(2 * near - 1)
        if bounds.width is None:
            return key <= bounds.last
        return T.Cast("uint32", bounds.last - key) < T.Cast("uint32", bounds.width)

    def _visible_end(self) -> Expr:
        """One past the last key that any of the tokens sees."""
        last = Local(1, "int32")
        last[0] = T.int32(0)
        with T.serial(self.count) as t:
            last[0] = T.max(last[0], self._last_seen(int32(t)))
        return bind(T.min(last[0] + 1, self.sequence.keys))

    def _first_seen(self, t: Expr) -> Expr:
        """The first position that token t of the tile sees."""
        return self.sequences.step.token(self.token + t, "visible_from")

    def _last_seen(self, t: Expr) -> Expr:
        """The last position that token t of the tile sees."""
        return self.sequences.step.token(self.token + t, "visible_until")


def _end(shape: AttentionShape, position: Expr, keys: Expr) -> Expr:
    """One past the last key that queries before `position` see, of a sequence of `keys`."""
    if shape.causal:
        return position
    return keys if shape.window is None else bind(T.min(position + (shape.window - 1), keys))
