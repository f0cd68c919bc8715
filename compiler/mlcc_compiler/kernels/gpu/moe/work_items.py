"""Work items of a mixture of experts (see `gpu/linear/work_item.py`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mlcc_compiler.ir._tvm import tirx
from mlcc_compiler.kernels.frame import Expr, store
from mlcc_compiler.kernels.gpu.linear.packing import GpuPacking
from mlcc_compiler.kernels.gpu.linear.work_item import TileRows
from mlcc_compiler.kernels.gpu.moe.sort_tokens import divmod_positive, find_tile
from mlcc_compiler.kernels.gpu.vec4 import Vec4Buffer
from mlcc_compiler.kernels.gpu.workgroup import barrier, bind, int32, shared, when


@dataclass(frozen=True)
class ExpertLinearShape:
    """Sizes of an `ops.expert_linear`."""

    matrices: int
    experts: int
    chosen: int
    width: int
    """Row length of x: K, or chosen * K where each choice has its own part."""
    words: int = 0
    """Of a part of x in words; 0 = two numbers a word."""

    @property
    def kinds(self) -> int:
        """Matrices of an expert."""
        return self.matrices // self.experts

    @property
    def slots(self) -> int:
        """Products per token: for each kind of matrix, of each choice."""
        return self.kinds * self.chosen


@dataclass(frozen=True)
class _ExpertWork:
    """The buffers, and the part of the weight that is read."""

    source: Any
    y: Any
    packing: GpuPacking
    part: int
    numbers: ExpertLinearShape

    @property
    def n_out(self) -> int:
        """Rows of a matrix."""
        return self.packing.n // self.numbers.matrices

    @property
    def x(self) -> _RowsByChoice:
        """Rows of x by (token, choice)."""
        return _RowsByChoice(self.source, self.packing.k, self._step)

    @property
    def words(self) -> Any:
        return self.source

    def first_word(self, row: tuple[Expr, Expr]) -> Expr:
        """Of a choice's part, where it has its own."""
        token, choice = row
        words, parts = self.numbers.words or self.packing.k // 2, self.numbers.width
        parts //= self.packing.k
        return token * (parts * words) + (choice * words if parts > 1 else 0)

    @property
    def _step(self) -> int:
        """Numbers between the parts of x that choices read."""
        return self.packing.k if self.numbers.width != self.packing.k else 0

    def row(self, matrix: Expr, n: Expr) -> Expr:
        """Emit the index within the part of row n of a matrix, clamped to the part."""
        last = len(self.packing.parts[self.part]) - 1
        within = tirx.min(n, int32(self.n_out - 1))
        row = matrix * self.n_out + within - self.packing.parts[self.part].start
        return bind(tirx.max(tirx.min(row, int32(last)), int32(0)))

    def write(self, matrix: Expr, kind: Expr, entry: Expr, n: Expr, value: Expr) -> None:
        """Emit the store of row n's product for an entry of the order, if the row is in this
        part."""
        rows, chosen = self.packing.parts[self.part], self.numbers.chosen
        row = bind(matrix * self.n_out + n)
        with when(tirx.all(n < self.n_out, row >= rows.start, row < rows.stop)):
            token, choice = divmod_positive(entry, chosen)
            store(self.y, value, token, (kind * chosen + choice) * self.n_out + n)


class _RowsByChoice:
    """Acts like a buffer [n, K] whose rows are pairs (token, choice)."""

    def __init__(self, buffer: Any, k: int, step: int) -> None:
        self.buffer, self.step = buffer, step
        self.shape, self.dtype = (buffer.shape[0], k), buffer.dtype

    def __getitem__(self, at: tuple[tuple[Expr, Expr], Expr]) -> Expr:
        (token, choice), column = at
        return self.buffer[token, choice * self.step + column]

    def vec4(self) -> _RowsByChoiceVec4:
        """A view that reads four neighbours at a time."""
        return _RowsByChoiceVec4(Vec4Buffer(self.buffer), self.shape[1], self.step)


class _RowsByChoiceVec4(_RowsByChoice):
    """`_RowsByChoice` over a `Vec4Buffer`."""

    def load4(self, at: tuple[Expr, Expr], first: Expr) -> Expr:
        """The vector of a row that starts at `first`, a multiple of four."""
        token, choice = at
        found: Expr = self.buffer.load4(token, choice * self.step + first)
        return found


@dataclass(frozen=True)
class PerTokenWork(_ExpertWork):
    """A tile is one choice of a token, times one of its expert's matrices."""

    choice: Any

    def blocks(self, rows: int) -> Expr:
        """One row per tile, whatever `rows`."""
        return self.choice.shape[0] * self.numbers.slots

    def tile(self, block: Expr, rows: int, thread: Expr, threads: int) -> TileRows:
        """The matrix kinds of an entry are neighbouring tiles."""
        entry, kind = divmod_positive(block, self.numbers.kinds)
        source = divmod_positive(entry, self.numbers.chosen)
        matrix = bind(kind * self.numbers.experts + self.choice[source])
        return _PerTokenTile(self, entry, source, kind, matrix)


@dataclass(frozen=True)
class _PerTokenTile:
    work: PerTokenWork
    entry: Expr
    source: tuple[Expr, Expr]
    kind: Expr
    matrix: Expr

    def x_row(self, m: Expr) -> tuple[Expr, Expr]:
        return self.source

    def w_row(self, n: Expr) -> Expr:
        return self.work.row(self.matrix, n)

    def write(self, m: Expr, n: Expr, value: Expr) -> None:
        self.work.write(self.matrix, self.kind, self.entry, n, value)


@dataclass(frozen=True)
class GroupedWork(_ExpertWork):
    """A tile is some entries of one expert, times one of its matrices."""

    order: Any
    begin: Any
    table: int
    """The row of `begin` with the starts of tiles of this height."""

    def blocks(self, rows: int) -> Expr:
        """Upper bound: each expert's last tile may have one row."""
        entries = self.order.shape[0] * self.numbers.chosen
        tiles = tirx.floordiv(entries + self.numbers.experts * (rows - 1), rows)
        return tiles * self.numbers.kinds

    def tile(self, block: Expr, rows: int, thread: Expr, threads: int) -> TileRows:
        """Copies the tile's entries to shared memory."""
        numbers, chosen = self.numbers, self.numbers.chosen
        number, kind = divmod_positive(block, numbers.kinds)
        found = find_tile(self.begin, self.table, rows, numbers.experts, number)
        last = bind(int32(self.order.shape[0]) * chosen - 1)
        entries = shared((rows,), "int32")
        for i in range(0, rows, threads):
            m = bind(thread + i)
            at = bind(tirx.min(found.first + tirx.min(m, tirx.max(found.count - 1, 0)), last))
            with when(m < rows):
                store(entries, self.order[divmod_positive(at, chosen)], m)
        barrier()
        matrix = bind(kind * numbers.experts + found.expert)
        return _GroupedTile(self, entries, found.count, kind, matrix)


@dataclass(frozen=True)
class _GroupedTile:
    work: GroupedWork
    entries: Any
    count: Expr
    kind: Expr
    matrix: Expr

    def x_row(self, m: Expr) -> tuple[Expr, Expr]:
        return divmod_positive(bind(self.entries[m]), self.work.numbers.chosen)

    def w_row(self, n: Expr) -> Expr:
        return self.work.row(self.matrix, n)

    def write(self, m: Expr, n: Expr, value: Expr) -> None:
        with when(m < self.count):
            self.work.write(self.matrix, self.kind, bind(self.entries[m]), n, value)
