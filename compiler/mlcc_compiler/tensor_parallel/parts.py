"""Partition of tensors over ranks, and a checkpoint's tensors as one rank sees them.

A matrix split by rows computes some of the outputs; one split by columns computes a partial sum.
Knows no model.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from mlcc.errors import UnsupportedError
from mlcc_compiler.checkpoint.safetensors import Tensors, supports_rows
from mlcc_compiler.quantization.quantized import PARTS, Quantized
from mlcc_compiler.quantization.schemes import ROW, Scheme

Floats = npt.NDArray[np.float32]

ROWS, COLUMNS = 0, 1


@dataclass(frozen=True)
class Part:
    """A rank's part of a tensor: equal parts along an axis."""

    axis: int | None
    """ROWS, COLUMNS, or None: rank 0 has the whole tensor, the others zeros (a bias of partial sums
    must be added once)."""
    sections: tuple[int, ...] = ()
    """Row sections that are split independently (q, k and v in one matrix); () = one section."""
    copies: tuple[int, ...] = ()
    """Number of neighbouring ranks that share the same part, for each section; () = none."""

    def rows(self, size: int, rank: int, ranks: int) -> list[range]:
        """Row ranges of a rank, of `size` rows."""
        if self.axis != ROWS:
            return [range(size)]
        found, first = [], 0
        sections = self.sections or (size,)
        for section, copies in zip(sections, self.copies or (1,) * len(sections), strict=True):
            own = section * copies // ranks
            begin = first + rank // copies * own
            found.append(range(begin, begin + own))
            first += section
        return found

    def columns(self, size: int, rank: int, ranks: int) -> slice:
        """Column range of a rank, of `size` columns."""
        if self.axis != COLUMNS:
            return slice(None)
        own = size // ranks
        return slice(rank * own, (rank + 1) * own)

    def shape(self, shape: tuple[int, ...], ranks: int) -> tuple[int, ...]:
        """Shape of a rank's part."""
        if self.axis is None:
            return shape
        own = list(shape)
        own[self.axis] = (
            sum(map(len, self.rows(shape[0], 0, ranks))) if self.axis == ROWS else shape[1] // ranks
        )
        return tuple(own)


@dataclass(frozen=True)
class RankTensors:
    """A checkpoint's tensors as one rank reads them, under the same names; tensors without a part
    are whole."""

    base: Tensors
    parts: Mapping[str, Part]
    """Parts by the checkpoint's names, and by those of `aliases`."""
    rank: int
    ranks: int
    aliases: Mapping[str, str]
    """Additional names for tensors that are needed both whole and split."""

    @cached_property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        found = {**self.base.shapes, **{n: self.base.shapes[s] for n, s in self.aliases.items()}}
        parts = self.parts.items()
        return found | {n: p.shape(found[n], self.ranks) for n, p in parts if n in found}

    @cached_property
    def schemes(self) -> dict[str, str]:
        return self._named(self.base.schemes)

    @cached_property
    def nearest(self) -> dict[str, str]:
        return self._named(self.base.nearest)

    @property
    def is_quantized(self) -> bool:
        return self.base.is_quantized

    @property
    def notes(self) -> Iterable[str]:
        return self.base.notes

    @property
    def nbytes(self) -> int:
        return self.base.nbytes

    def __contains__(self, name: str) -> bool:
        return self._source(name) in self.base

    def check_dtypes(self, names: Iterable[str]) -> None:
        self.base.check_dtypes(map(self._source, names))

    def read(self, name: str) -> Floats:
        whole = self.base.read(self._source(name))
        part = self.parts.get(name)
        if part is None:
            return whole
        if part.axis is None:
            return whole if self.rank == 0 else np.zeros_like(whole)
        if part.axis == COLUMNS:
            return np.ascontiguousarray(whole[:, self._columns(part, name)])
        return np.concatenate([whole[own.start : own.stop] for own in self._rows(part, name)])

    def quantized(self, name: str) -> Quantized:
        """Codes and scales of the part, unchanged."""
        whole = self.base.quantized(self._source(name))
        part = self.parts.get(name)
        if part is None or part.axis is None:
            return whole
        if part.axis == COLUMNS:
            return _columns_of(whole, self._columns(part, name))
        pieces = [whole.rows(slice(own.start, own.stop)) for own in self._rows(part, name)]
        have = [field for field in PARTS if getattr(whole, field) is not None]
        joined: dict[str, Any] = {
            field: np.concatenate([getattr(piece, field) for piece in pieces]) for field in have
        }
        return replace(whole, **joined)

    def of_columns(self, values: Mapping[str, Floats]) -> dict[str, Floats]:
        """Per-column values of tensors, [K] each, restricted to the rank's columns."""
        return {
            name: row[self._columns(self.parts[name], name)] if name in self.parts else row
            for name, row in values.items()
        }

    def _source(self, name: str) -> str:
        return self.aliases.get(name, name)

    def _named(self, given: Mapping[str, str]) -> dict[str, str]:
        return {**given, **{n: given[s] for n, s in self.aliases.items() if s in given}}

    def _rows(self, part: Part, name: str) -> list[range]:
        return part.rows(self.base.shapes[self._source(name)][0], self.rank, self.ranks)

    def _columns(self, part: Part, name: str) -> slice:
        return part.columns(self.base.shapes[self._source(name)][-1], self.rank, self.ranks)


class RankRows(RankTensors):
    """`RankTensors` of a checkpoint that can be read by rows."""

    def read_rows(self, name: str, rows: slice) -> Floats:
        """`read(name)[rows]`."""
        part, source = self.parts.get(name), self._source(name)
        base: Any = self.base
        if part is None or part.axis is None:
            found: Floats = base.read_rows(source, rows)
            return found if part is None or self.rank == 0 else np.zeros_like(found)
        if part.axis == COLUMNS:
            return np.ascontiguousarray(base.read_rows(source, rows)[:, self._columns(part, name)])
        wanted = _within(self._rows(part, name), rows)
        return np.concatenate([base.read_rows(source, slice(w.start, w.stop)) for w in wanted])


def rank_tensors(
    base: Tensors, parts: Mapping[str, Part], aliases: Mapping[str, str], rank: int, ranks: int
) -> RankTensors:
    """A checkpoint's tensors as a rank sees them."""
    kind = RankRows if supports_rows(base) else RankTensors
    return kind(base, parts, rank, ranks, aliases)


def _within(pieces: list[range], rows: slice) -> Iterator[range]:
    """The part from `rows.start` to `rows.stop` of rows that lie in pieces, counted over all
    pieces."""
    first = 0
    for piece in pieces:
        begin, end = max(rows.start - first, 0), min(rows.stop - first, len(piece))
        if begin < end:
            yield piece[begin:end]
        first += len(piece)


def _columns_of(q: Quantized, columns: slice) -> Quantized:
    """Some columns of a quantized matrix: whole groups and blocks."""
    how, count = q.scheme, columns.stop - columns.start
    lengths = {"codes": 1, "scales": how.block or how.group, "minima": how.block or how.group}
    lengths |= {"zeros": how.group, "sub_scales": how.group, "sub_minima": how.group}
    parts: dict[str, Any] = {}
    for name, length in lengths.items():
        whole = getattr(q, name)
        if whole is None or length == 0:  # a scale a row: that of each of its parts
            continue
        first = columns.start // length
        parts[name] = np.ascontiguousarray(whole[:, first : first + -(-count // length)])
    return replace(q, **parts)


def check_columns(name: str, how: Scheme, row: int, ranks: int, kept: bool) -> None:
    """Raises UnsupportedError where a column split would cut groups that share a scale; for
    codes that are kept unchanged, blocks too."""
    whole = row % ranks == 0 and how.fits(row // ranks)
    if not whole:
        raise UnsupportedError(
            f"--tp {ranks}: rows of {row} of '{name}' are not {ranks} parts of whole groups of "
            f"scheme '{how.name}'; use another --quant, or a smaller --tp"
        )
    if kept and 0 < how.block < ROW and (row // ranks) % how.block:
        raise UnsupportedError(
            f"--tp {ranks}: '{name}' has blocks of {how.block} weights in scheme '{how.name}', "
            f"which parts of {row // ranks} would cut; use --quant q4 to quantize it anew, or "
            "leave out --tp"
        )
