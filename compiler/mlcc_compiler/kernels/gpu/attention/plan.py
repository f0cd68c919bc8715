"""How workgroups divide the work of attention, within a device's limits.

Plain arithmetic on sizes, no code is emitted here.
"""

from __future__ import annotations

from dataclasses import dataclass

from mlcc_compiler.ir._tvm import tirx
from mlcc_compiler.ir.layout import AttentionShape
from mlcc_compiler.kernels.frame import Expr
from mlcc_compiler.kernels.gpu.attention.sequences import VECTOR, heads_together
from mlcc_compiler.kernels.gpu.device import Gpu

_RANGE = 128
_THREADS = 128  # of a workgroup
_MOST_HEADS = 8  # whose sums stay in registers; larger groups are split
_MOST_LANES = 8
_MOST_SCORES = 32  # registers in which a thread sums dot products
_MOST_BYTES = 24576  # of workgroup memory, so that several groups share a processor
COLUMN_THREADS = 8
ROWS = 4  # rows of a tile that one thread computes
PAD = 4  # cells between rows in workgroup memory: against bank conflicts, keeps vectors aligned


def pages_per_range(page_size: int) -> int:
    """Pages of a range of keys."""
    return max(1, _RANGE // page_size)


def range_items(pages: Expr, sequences: Expr, page_size: int) -> Expr:
    """Upper bound of a step's ranges of keys: workgroups to start, rows of partial sums."""
    return tirx.floordiv(pages, pages_per_range(page_size)) + sequences


@dataclass(frozen=True)
class RangePlan:
    """How a workgroup divides a range of keys. Powers of two where threads are divided by them."""

    threads: int
    keys: int
    """Keys of a range."""
    dim: int
    heads: int
    """Query heads that share loaded keys and values."""
    slice: int
    """Heads whose sums over threads are computed at once."""

    @property
    def lanes(self) -> int:
        """Threads that share a dot product."""
        vectors, lanes = self.dim // VECTOR, 1
        while lanes < _MOST_LANES and vectors % (2 * lanes) == 0:
            lanes *= 2
        return lanes

    @property
    def keys_at_once(self) -> int:
        """Keys that a thread multiplies with each vector of the queries."""
        most = max(1, self.keys * self.lanes // self.threads)
        return min(4, most, max(1, _MOST_SCORES // self.heads))

    @property
    def pass_keys(self) -> int:
        """Keys whose scores the workgroup computes at once."""
        return self.threads // self.lanes * self.keys_at_once

    @property
    def columns(self) -> int:
        """Threads that hold a vector of the output each."""
        return self.dim // VECTOR

    @property
    def teams(self) -> int:
        """Groups of such threads; each takes every teams-th value."""
        return self.threads // self.columns

    @property
    def values_at_once(self) -> int:
        return min(4, max(1, self.keys // self.teams))

    @property
    def score_columns(self) -> int:
        """Scores per head, with space for the last step over the values."""
        step = self.teams * self.values_at_once
        return -(-self.keys // step) * step

    @property
    def scratch(self) -> int:
        """float32 cells for sums over threads."""
        dots = self.pass_keys * (self.lanes + 1)
        return self.slice * max(dots, self.teams * self.dim)

    @property
    def shared_bytes(self) -> int:
        """Workgroup memory, with that of two reductions."""
        cells = self.heads * (self.dim + self.score_columns) + self.scratch + self.keys
        return 4 * (cells + 2 * self.threads)

    @classmethod
    def of(cls, gpu: Gpu, shape: AttentionShape, page_size: int) -> RangePlan:
        """The most heads that fit, then the largest slice."""
        keys = pages_per_range(page_size) * page_size
        for heads in heads_together(shape, _MOST_HEADS):
            for size in (s for s in range(heads, 0, -1) if heads % s == 0):
                plan = cls(min(gpu.threads, _THREADS), keys, shape.head_dim, heads, size)
                if plan.shared_bytes <= min(gpu.shared_bytes, _MOST_BYTES):
                    return plan
        raise ValueError(f"attention of {shape} does not fit into {gpu.shared_bytes} bytes")


@dataclass(frozen=True)
class TilePlan:
    """How a workgroup divides a tile."""

    threads: int
    heads: int
    """Query heads of a token in the tile."""
    columns: int
    """Neighbouring keys, or dimensions, that one thread computes."""
    depth: int
    """Dimensions of queries and keys in workgroup memory at once."""

    @property
    def rows(self) -> int:
        """Query rows of a tile."""
        return self.threads // COLUMN_THREADS * ROWS

    @property
    def tokens(self) -> int:
        """Query tokens of a tile."""
        return self.rows // self.heads

    @property
    def keys(self) -> int:
        """Keys of a block; as many dimensions of values are in workgroup memory at once."""
        return COLUMN_THREADS * self.columns

    @property
    def stage(self) -> int:
        """float32 cells for slices of queries and keys, or of values."""
        scores = self.depth * (self.rows + self.keys + 2 * PAD)
        return max(scores, self.keys * (self.keys + PAD))

    @property
    def shared_bytes(self) -> int:
        """Workgroup memory."""
        weights = self.keys * (self.rows + PAD)
        return 4 * (weights + self.stage + self.rows + self.keys)

    @classmethod
    def of(cls, gpu: Gpu, shape: AttentionShape) -> TilePlan:
        """The largest blocks that fit."""
        threads = min(gpu.threads, _THREADS)
        rows = cls(threads, 1, 1, 1).rows
        heads = heads_together(shape, rows)[0]
        for columns in (4, 2):
            for depth in (32, 16, 8):
                plan = cls(threads, heads, columns, depth)
                if plan.shared_bytes <= gpu.shared_bytes:
                    return plan
        raise ValueError(f"attention of {shape} does not fit into {gpu.shared_bytes} bytes")
