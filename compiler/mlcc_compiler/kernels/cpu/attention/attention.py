"""Attention over paged keys and values, causal or not, prefill and decode rows mixed, on the CPU.

Pages as in PagedAttention (Kwon et al., 2023), tiles as in FlashAttention (Dao et al., 2022), key
ranges split and merged as in Flash-Decoding (Dao et al., 2023). A task is a tile of tokens of one
sequence for one KV head and, of few tokens, one range of keys, so that one decode row feeds all
threads; `sequences.py` cuts a step so. Keys and values are appended (`kv.py`) and rotated already.
"""

from collections.abc import Sequence
from typing import Any

from mlcc_compiler.ir._tvm import T
from mlcc_compiler.ir.graph import Graph, dims, dtype_of, tensor
from mlcc_compiler.ir.layout import AttentionShape, KvLayout
from mlcc_compiler.kernels.cpu.attention.blocking import Blocking, Cache, Scratch
from mlcc_compiler.kernels.cpu.attention.sequences import MOST_RANGES, PagedSequences
from mlcc_compiler.kernels.cpu.attention.tile import TileKernel
from mlcc_compiler.kernels.cpu.isa.isa import Isa
from mlcc_compiler.kernels.cpu.isa.vector_math import Registers, bind, exp, span, spread
from mlcc_compiler.kernels.cpu.linear.amx_outputs import WRITES_LAST
from mlcc_compiler.kernels.frame import (
    SIZE,
    Expr,
    PrimFunc,
    activations,
    f32,
    kernel,
    page_arguments,
    store,
)
from mlcc_compiler.kernels.kernel_set import KernelSet
from mlcc_compiler.kernels.step import Step, step_argument


def emit_attention(
    kernels: KernelSet,
    graph: Graph,
    inputs: Sequence[Any],
    sizes: tuple[Any, Any],
    shape: AttentionShape,
    layout: KvLayout,
) -> Any:
    """Emit attention of `inputs`: those of `paged_attention`, but for sinks that are behind the
    queries; returns its output.

    sizes: (sequences, entries of the group's page list).
    """
    kernel = kernels.cached_kernel(paged_attention, shape, layout)
    num_queries, rest = inputs[: shape.num_queries], inputs[shape.num_queries :]
    q, *sinks = num_queries
    out = tensor(dims(q), dtype_of(q))
    return graph.call_tir(kernel, "paged_attention", [q, *rest, *sinks, sizes[0]], out)


def paged_attention(isa: Isa, shape: AttentionShape, layout: KvLayout) -> PrimFunc:
    """(q f32[n, heads, head_dim], pages, [scales], step, [sinks f32[heads]], b sequences at most)
    -> f32[n, heads, head_dim].

    pages: kv_dtype[num_pages, 2, kv_heads, page_size, head_dim]. The last query of a sequence sits
    at its last key. A query at position i sees keys j <= i, with a window w only j > i - w; not
    causal, all keys, with a window those of |i - j| < w. With `visible_until` the step's column of
    that name takes the place of i in j <= i; with `visible_from` j is at least that column. Pages
    that no query sees are not read. Tokens beyond the step's own get zeros.
    """
    cut = Blocking(shape, layout, isa)

    def body(q: Expr, pages: Expr, *rest: Expr) -> None:
        *before, most, out = rest
        sinks = before.pop() if shape.sinks else None
        *scales, words = before
        attend(cut, q, Cache(cut, pages, words, *scales), most, out, sinks)

    rows = activations(isa, "n", shape.heads, shape.head_dim)
    step, pages = step_argument(layout.step), page_arguments(layout)
    sinks = {"sinks": f32(shape.heads)} if shape.sinks else {}
    attention = kernel(body, q=rows, **pages, step=step, **sinks, sequences=SIZE, out=rows)
    return attention.with_attr(WRITES_LAST, True) if isa.has_tiles else attention


def attend(
    cut: Blocking, q: Expr, cache: Cache, most: Expr, out: Expr, sinks: Expr | None = None
) -> None:
    """Emit the body of `paged_attention`. Of values it takes the first columns, as many as out
    has."""
    sequences = PagedSequences(cut, Step(cut.layout.step, cache.words), most)
    _Kernel(cut, sequences, TileKernel(cut, cache), q, out, sinks).emit()


class _PartialSums:
    """Partial sums over ranges of keys, to be merged; a slot for each token and range.

    For each head: its sums, then the largest score and the total.
    """

    def __init__(self, cut: Blocking, dim: int, slots: Expr, sinks: Expr | None) -> None:
        self.dim, self.lanes, self.sinks = dim, cut.dim_lanes, sinks
        self.rows = T.alloc_buffer((slots, cut.shape.heads, self.dim + self.lanes * 2), "float32")

    def store_partial(self, slot: Expr, head: Expr, r: Expr, scratch: Scratch) -> None:
        """Store row r of a tile."""
        with T.serial(self.dim // self.lanes) as j:
            at = span(j * self.lanes, self.lanes)
            store(self.rows, scratch.sums[r, at], slot, head, at)
        store(self.rows, scratch.top[r], slot, head, self.dim)
        store(self.rows, scratch.total[r], slot, head, self.dim + 1)

    def merge(self, slot: Expr, stride: Expr, ranges: Expr, head: Expr, out: Expr, t: Expr) -> None:
        """out[t, head] from the slots slot, slot + stride ... of one token."""
        top, total = Registers(1, 1), Registers(1, 1)
        weight = T.alloc_buffer((MOST_RANGES,), "float32")
        top[0], total[0] = self.rows[slot, head, self.dim], T.float32(0)
        with T.serial(ranges) as c:
            top[0] = T.max(top[0], self.rows[slot + c * stride, head, self.dim])
        with T.serial(ranges) as c:
            store(weight, exp(self.rows[slot + c * stride, head, self.dim] - top[0]), c)
            part = self.rows[slot + c * stride, head, self.dim + 1]
            total[0] = total[0] + part * weight[c]
        factor = _inverse(total[0], top[0], self.sinks, head)
        sums = Registers(1, self.lanes)
        with T.serial(self.dim // self.lanes) as j:
            at = span(j * self.lanes, self.lanes)
            sums[0] = spread(0.0, self.lanes)
            with T.serial(ranges) as c:
                values = self.rows[slot + c * stride, head, at]
                sums[0] = sums[0] + values * spread(weight[c], self.lanes)
            store(out, sums[0] * spread(factor, self.lanes), t, head, at)


class _Kernel:
    """Emits the body: cut the step into tasks, run them, merge the key ranges."""

    def __init__(
        self,
        cut: Blocking,
        sequences: PagedSequences,
        tiles: TileKernel,
        q: Expr,
        out: Expr,
        sinks: Expr | None,
    ) -> None:
        self.sinks = sinks
        self.cut, self.sequences, self.tiles, self.q, self.out = cut, sequences, tiles, q, out
        self.firsts = T.alloc_buffer((sequences.most + 1, 2), "int64")
        self.dim = int(out.shape[2])
        slots = T.min(out.shape[0], sequences.most * sequences.most_split) * MOST_RANGES
        self.parts = _PartialSums(cut, self.dim, slots, sinks)

    def emit(self) -> None:
        """Distribute tasks to the threads round-robin; then merge, if needed, in a launch of its
        own: a barrier within one launch would wait for tasks that the same thread runs next."""
        b, kv_heads = self.sequences.count, self.cut.shape.kv_heads
        self._count_tasks()
        self._clear_padding()
        with (
            T.attr(0, "pragma_parallel_launch_point", 1),
            T.attr(0, "pragma_parallel_stride_pattern", 1),
            T.parallel(self.firsts[b, 0] * kv_heads) as task,
        ):
            # allocated here: TVM moves it out of anything but the parallel loop
            self._run_task(task, Scratch(self.cut))
        with (
            T.If(self.firsts[b, 1] > 0),
            T.Then(),
            T.attr(0, "pragma_parallel_launch_point", 1),
            T.parallel(b * kv_heads) as task,
        ):
            self._merge(bind(T.floordiv(task, kv_heads)), bind(T.floormod(task, kv_heads)))

    def _count_tasks(self) -> None:
        """Prefix sums over sequences: tasks (of each KV head), and slots for partial sums."""
        store(self.firsts, T.int64(0), 0, 0)
        store(self.firsts, T.int64(0), 0, 1)
        with T.serial(self.sequences.count) as s:
            own = self.sequences.cut_up(s)
            store(self.firsts, self.firsts[s, 0] + own.tiles * own.ranges, s + 1, 0)
            used = T.Select(own.ranges > 1, own.tokens * own.ranges, T.int64(0))
            store(self.firsts, self.firsts[s, 1] + used, s + 1, 1)

    def _clear_padding(self) -> None:
        lanes = self.cut.dim_lanes
        used = bind(T.Cast("int64", self.sequences.step.count("tokens")))
        steps = self.dim // lanes
        with T.serial(self.out.shape[0] - used) as t, T.grid(self.cut.shape.heads, steps) as (h, j):
            store(self.out, spread(0.0, lanes), used + t, h, span(j * lanes, lanes))

    def _run_task(self, task: Expr, scratch: Scratch) -> None:
        """Find the task's sequence, tile, KV head and range of keys, and run it."""
        index = bind(T.floordiv(task, self.cut.shape.kv_heads))
        s = self._sequence_of(index)
        own = self.sequences.cut_up(s)
        local = bind(index - self.firsts[s, 0])
        part = bind(T.floormod(local, own.ranges))
        head = bind(T.floormod(task, self.cut.shape.kv_heads))
        tile = self.sequences.tile(s, own, bind(T.floordiv(local, own.ranges)), part, head)
        self.tiles.run(tile, self.q, scratch)
        slot = bind(self.firsts[s, 1] + part * own.tokens - own.first)
        with T.serial(tile.rows) as r:
            token, head = self.cut.row(tile, r)
            with T.If(own.ranges > 1):
                with T.Then():
                    self.parts.store_partial(bind(slot + token), head, r, scratch)
                with T.Else():
                    self._finish(token, head, r, scratch)

    def _sequence_of(self, index: Expr) -> Expr:
        sequence = Registers(1, 1, "int64")
        sequence[0] = T.int64(0)
        with T.While(self.firsts[sequence[0] + 1, 0] <= index):
            sequence[0] = sequence[0] + 1
        return bind(sequence[0])

    def _finish(self, token: Expr, head: Expr, r: Expr, scratch: Scratch) -> None:
        """out = sums / total."""
        lanes = self.cut.dim_lanes
        factor = _inverse(scratch.total[r], scratch.top[r], self.sinks, head)
        with T.serial(self.dim // lanes) as j:
            at = span(j * lanes, lanes)
            store(self.out, scratch.sums[r, at] * spread(factor, lanes), token, head, at)

    def _merge(self, s: Expr, kv_head: Expr) -> None:
        """Merge the ranges of keys of one sequence, for the heads of one KV head."""
        group = self.cut.shape.group
        own = self.sequences.cut_up(s)
        with T.If(own.ranges > 1), T.Then(), T.serial(own.tokens) as t, T.serial(group) as g:
            slot, head = bind(self.firsts[s, 1] + t), bind(kv_head * group + g)
            token = bind(own.first + t)
            self.parts.merge(slot, own.tokens, own.ranges, head, self.out, token)


def _inverse(total: Expr, top: Expr, sinks: Expr | None, head: Expr) -> Expr:
    """1 / total, of weights e ** (score - top), including a sink's; 0 where no key is visible."""
    if sinks is not None:
        # beyond e ** 80 the rest of the weights are nothing beside it
        total = bind(total + exp(T.min(sinks[head] - top, T.float32(80))))
    return bind(T.Select(total != T.float32(0), T.float32(1) / total, T.float32(0)))
