"""A tile of latent attention (`latent.py`): query rows of one sequence against some of its keys.

Tile sizes for a device's limits, and the work of the workgroup that computes a tile.
"""

from __future__ import annotations

from dataclasses import dataclass

from mlcc.errors import UnsupportedError
from mlcc_compiler.ir._tvm import T, tirx
from mlcc_compiler.ir.mla import MlaShape
from mlcc_compiler.kernels.frame import Expr, store
from mlcc_compiler.kernels.gpu.attention.plan import PAD, ROWS
from mlcc_compiler.kernels.gpu.attention.sequences import (
    LOWEST,
    VECTOR,
    PagedSequence,
    PagedSequences,
    load_vector,
    split,
    strided,
)
from mlcc_compiler.kernels.gpu.attention.softmax import OnlineSoftmax
from mlcc_compiler.kernels.gpu.device import Gpu
from mlcc_compiler.kernels.gpu.workgroup import (
    barrier,
    bind,
    ceil_div,
    int32,
    real,
    shared,
    when,
    zeros,
)

_KEYS = 32  # of a block
_DEPTH = 32  # numbers of queries and keys that lie in workgroup memory at once
MOST_ROWS = 32


def heads_of(shape: MlaShape, rows: int) -> int:
    """Query heads of a token in a tile of that many rows."""
    return max(h for h in range(1, rows + 1) if shape.heads % h == 0)


@dataclass(frozen=True)
class LatentPlan:
    """How a workgroup divides a tile. Powers of two, except the heads."""

    rows: int
    heads: int
    """Query heads of a token in the tile."""

    @property
    def threads(self) -> int:
        """One for each key of a block and ROWS rows."""
        return self.rows // ROWS * _KEYS

    @property
    def tokens(self) -> int:
        """Query tokens of a tile."""
        return self.rows // self.heads

    @property
    def stage(self) -> int:
        """float32 cells for slices of queries and keys."""
        return _DEPTH * (self.rows + _KEYS + 2 * PAD)

    @property
    def shared_bytes(self) -> int:
        """Workgroup memory."""
        return 4 * (_KEYS * (self.rows + PAD) + self.stage + self.rows + _KEYS)

    @classmethod
    def of(cls, gpu: Gpu, shape: MlaShape, wanted: int) -> LatentPlan:
        """The fewest rows that are at least `wanted`, or the most that fit."""
        if shape.rank % VECTOR or shape.rank > VECTOR * gpu.threads:
            raise UnsupportedError(
                f"latents of {shape.rank} numbers are not supported on a GPU, only multiples of "
                f"{VECTOR} up to {VECTOR * gpu.threads}; use --target cpu"
            )
        rows = ROWS
        while rows < min(wanted, MOST_ROWS) and cls(2 * rows, 1).fits(gpu):
            rows *= 2
        return cls(rows, heads_of(shape, rows))

    def fits(self, gpu: Gpu) -> bool:
        """Whether a workgroup may be that large."""
        return self.threads <= gpu.threads and self.shared_bytes <= gpu.shared_bytes


class Tile:
    """Emits the work of one workgroup: `count` tokens from the sequence's token `start` on."""

    def __init__(
        self,
        shape: MlaShape,
        plan: LatentPlan,
        sequences: PagedSequences,
        sequence: PagedSequence,
        start: Expr,
        count: Expr,
        thread: Expr,
    ) -> None:
        self.shape, self.plan, self.sequences, self.sequence = shape, plan, sequences, sequence
        self.count, self.thread = count, thread
        self.token = bind(sequence.token + start)
        self.position = bind(sequence.keys - sequence.tokens + start)
        # this thread's key and rows of a block's scores
        self.rows_at, self.key = bind(thread // _KEYS), bind(thread % _KEYS)
        self.softmax = OnlineSoftmax(plan.rows, _KEYS, plan.threads, thread)
        self.stage = shared((plan.stage,))
        self.places = shared((_KEYS,), "int32")
        self.columns = ceil_div(shape.rank, plan.threads)
        self.outputs = zeros(self.columns * plan.rows)

    def run(self, q: Expr, pages: Expr, head: Expr, begin: Expr, end: Expr) -> None:
        """Go through the keys from begin to end - 1."""
        size, width = self.sequences.layout.page_size, self.shape.width
        latents = T.decl_buffer(
            (pages.shape[0] * size, width), self.sequences.layout.dtype, data=pages.data
        )
        with T.serial(ceil_div(end - begin, _KEYS)) as block:
            first = bind(begin + int32(block) * _KEYS)

            def place(i: Expr) -> None:
                number, offset = split(T.min(first + i, end - 1), size)
                page = self.sequences.step.page(self.sequence.page, number)
                store(self.places, page * size + offset, i)

            strided(_KEYS, self.plan.threads, self.thread, place)
            barrier()
            self._score(q, latents, head, first, end)
            self.softmax.update()
            self._add_values(latents, bind(T.min(end - first, _KEYS)))

    def _score(self, q: Expr, latents: Expr, head: Expr, first: Expr, end: Expr) -> None:
        """weights[key, row] = the scores of a block, LOWEST where a key is hidden."""
        plan, width = self.plan, self.shape.width
        stride, key_stride = plan.rows + PAD, _KEYS + PAD
        scores = zeros(ROWS)
        with T.serial(ceil_div(width, _DEPTH)) as part:
            at = bind(int32(part) * _DEPTH)

            def query(i: Expr) -> None:
                r, d = split(i, _DEPTH)
                with T.If(tirx.all(r < self.count * plan.heads, at + d < width)):
                    with T.Then():
                        token, h = split(r, plan.heads)
                        value = q[self.token + token, head + h, at + d] * real(self.shape.scale)
                        store(self.stage, value, d * stride + r)
                    with T.Else():
                        store(self.stage, real(0), d * stride + r)

            def key(i: Expr) -> None:
                j, d = split(i, _DEPTH)
                cell = bind(_DEPTH * stride + d * key_stride + j)
                with T.If(at + d < width):
                    with T.Then():
                        value = latents[bind(self.places[j]), at + d].astype("float32")
                        store(self.stage, value, cell)
                    with T.Else():
                        store(self.stage, real(0), cell)

            strided(plan.rows * _DEPTH, plan.threads, self.thread, query)
            strided(_KEYS * _DEPTH, plan.threads, self.thread, key)
            barrier()
            with T.serial(_DEPTH) as d:
                a = load_vector(self.stage, int32(d) * (stride // ROWS) + self.rows_at, count=ROWS)
                b = bind(self.stage[_DEPTH * stride + int32(d) * key_stride + self.key])
                for r in range(ROWS):
                    scores[r] = scores[r] + a[r] * b
            barrier()
        j = bind(first + self.key)
        for r in range(ROWS):
            row = bind(self.rows_at * ROWS + r)
            last = T.min(self.position + split(row, plan.heads)[0], end - 1)
            store(
                self.softmax.weights,
                T.if_then_else(j <= last, scores[r], real(LOWEST)),
                self.key,
                row,
            )
        barrier()

    def _add_values(self, latents: Expr, keys: Expr) -> None:
        """outputs = outputs * factor + weights times the block's values."""
        plan, rank = self.plan, self.shape.rank
        for r in range(plan.rows):
            factor = bind(self.softmax.factors[r])
            for c in range(self.columns):
                at = c * plan.rows + r
                self.outputs[at] = self.outputs[at] * factor
        with T.serial(keys) as j:
            place = bind(self.places[j])
            values = [
                bind(latents[place, T.min(self._column(c), rank - 1)].astype("float32"))
                for c in range(self.columns)
            ]
            for first in range(0, plan.rows, ROWS):
                weights = load_vector(self.softmax.weights, int32(j), first // ROWS, count=ROWS)
                for c, value in enumerate(values):
                    for r in range(ROWS):
                        at = c * plan.rows + first + r
                        self.outputs[at] = self.outputs[at] + weights[r] * value
        barrier()

    def _column(self, c: int) -> Expr:
        """The c-th column of the values that this thread owns."""
        return self.thread + c * self.plan.threads

    def store_partial(self, sums: Expr, stats: Expr, item: Expr, head: Expr) -> None:
        """Store the sums of a range of keys, of one token, for `merge`."""
        self.softmax.sum_weights(self.stage)
        with when(self.thread < self.plan.heads):
            store(stats, self.softmax.best[0], item, head + self.thread, 0)
            store(stats, self.softmax.factors[self.thread], item, head + self.thread, 1)
        for h in range(self.plan.heads):
            self._store(sums, h, real(1), item, head + h)

    def finish(self, out: Expr, head: Expr) -> None:
        """out = outputs / the sum of the weights."""
        plan = self.plan
        self.softmax.sum_weights(self.stage)
        for r in range(plan.tokens * plan.heads):
            token, h = divmod(r, plan.heads)
            with when(token < self.count):
                factor = bind(real(1) / self.softmax.factors[r])
                self._store(out, r, factor, self.token + token, head + h)

    def _store(self, buffer: Expr, r: int, factor: Expr, *at: Expr) -> None:
        """buffer[at] = row r's outputs times a factor."""
        for c in range(self.columns):
            d = bind(self._column(c))
            with when(d < self.shape.rank):
                store(buffer, self.outputs[c * self.plan.rows + r] * factor, *at, d)
