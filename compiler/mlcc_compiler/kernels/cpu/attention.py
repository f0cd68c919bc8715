"""Causal attention over paged keys and values, prefill and decode rows mixed, on the CPU.

Pages as in PagedAttention (Kwon et al., 2023), tiles as in FlashAttention (Dao et al., 2022), key
ranges split and merged as in Flash-Decoding (Dao et al., 2023). A task is a tile of tokens of one
sequence for one KV head; a sequence of one tile is cut into ranges of keys so that one decode row
feeds all threads. How it is cut depends on its own lengths only: neither on the other sequences
nor on the number of threads. Keys and values are appended (`kv.py`) and rotated already.
"""

from mlcc_compiler._tvm import T, tirx
from mlcc_compiler.kernels.cpu.attention_tile import AttentionShape, Scratch, Tile, TileKernel
from mlcc_compiler.kernels.cpu.vector_math import bind, exp, span, spread, store

_ATTRS = {"tirx.noalias": True, "tirx.is_scheduled": True, "op_pattern": 8}
_RANGE = 128  # keys worth a task of their own
_RANGES = 16  # at most so many per sequence


def paged_attention(
    heads: int,
    kv_heads: int,
    head_dim: int,
    page_size: int,
    scale: float,
    window: int | None,
    softcap: float | None,
    kv_dtype: str,
    lanes: int,
) -> tirx.PrimFunc:
    """(q f32[n, heads, head_dim], pages, qo_indptr i32[b + 1], page_indptr i32[b + 1],
    page_indices i32[p], last_page_len i32[b]) -> f32[n, heads, head_dim].

    pages: kv_dtype[num_pages, 2, kv_heads, page_size, head_dim]. The last query of a sequence sits
    at its last key. A query at position i sees keys j <= i, with a window w only j > i - w; pages
    that no query sees are not read and may be -1. Tokens behind qo_indptr[b] get zeros.
    """
    shape = AttentionShape(
        heads, kv_heads, head_dim, page_size, scale, window, softcap, kv_dtype, lanes
    )

    @T.prim_func(s_tir=True, private=True)
    def paged_attention(
        q_handle: T.handle,
        pages_handle: T.handle,
        qo_indptr_handle: T.handle,
        page_indptr_handle: T.handle,
        page_indices_handle: T.handle,
        last_page_len_handle: T.handle,
        out_handle: T.handle,
    ):
        T.func_attr(_ATTRS)
        n, b, p, num_pages = T.int64(), T.int64(), T.int64(), T.int64()
        q = T.match_buffer(q_handle, (n, heads, head_dim), "float32")
        pages = T.match_buffer(
            pages_handle, (num_pages, 2, kv_heads, page_size, head_dim), kv_dtype
        )
        qo_indptr = T.match_buffer(qo_indptr_handle, (b + 1,), "int32")
        page_indptr = T.match_buffer(page_indptr_handle, (b + 1,), "int32")
        page_indices = T.match_buffer(page_indices_handle, (p,), "int32")
        last_page_len = T.match_buffer(last_page_len_handle, (b,), "int32")
        out = T.match_buffer(out_handle, (n, heads, head_dim), "float32")
        _Kernel(shape, q, pages, page_indices, out).emit(
            qo_indptr, page_indptr, last_page_len, n, b
        )

    return paged_attention


class _Kernel:
    """Emits the body: cut the batch into tasks, run them, merge the key ranges."""

    def __init__(self, shape, q, pages, page_indices, out) -> None:
        self.shape = shape
        self.q = q
        self.out = out
        self.tiles = TileKernel(shape, pages, page_indices)

    def emit(self, qo_indptr, page_indptr, last_page_len, n, b) -> None:
        shape = self.shape
        self.qo_indptr, self.page_indptr = qo_indptr, page_indptr
        self.last_page_len = last_page_len
        self.first_task = T.alloc_buffer((b + 1,), "int64")
        self.first_slot = T.alloc_buffer((b + 1,), "int64")
        slots = T.min(n, b * shape.tokens) * _RANGES
        self.part_sums = T.alloc_buffer((slots, shape.heads, shape.head_dim), "float32")
        self.part_top = T.alloc_buffer((slots, shape.heads), "float32")
        self.part_total = T.alloc_buffer((slots, shape.heads), "float32")
        self._count_tasks(b)
        self._clear_padding(n, b)
        with T.attr(0, "pragma_parallel_launch_point", 1):
            with T.attr(0, "pragma_parallel_barrier_when_finish", 1):
                with T.attr(0, "pragma_parallel_stride_pattern", 1):
                    with T.parallel(self.first_task[b] * shape.kv_heads) as task:
                        # allocated here: TVM moves it out of anything but the parallel loop
                        self._run_task(task, Scratch(shape))
            with T.parallel(b * shape.kv_heads) as task:
                self._merge(T.floordiv(task, shape.kv_heads), T.floormod(task, shape.kv_heads))

    def _lengths(self, s):
        """(first token, tokens, keys) of a sequence."""
        first = bind(T.Cast("int64", self.qo_indptr[s]))
        tokens = bind(T.Cast("int64", self.qo_indptr[s + 1]) - first)
        pages = T.Cast("int64", self.page_indptr[s + 1]) - T.Cast("int64", self.page_indptr[s])
        keys = bind((pages - 1) * self.shape.page_size + T.Cast("int64", self.last_page_len[s]))
        return first, tokens, keys

    def _key_pages(self, position, end):
        """(first page, pages) that queries from `position` up to `end` - 1 see."""
        size = self.shape.page_size
        window = self.shape.window
        seen = T.int64(0) if window is None else T.max(position + 1 - window, 0)
        first = bind(T.floordiv(seen, size))
        return first, bind(T.max(T.floordiv(end + size - 1, size) - first, 0))

    def _ranges(self, tokens, pages):
        """Ranges of keys a sequence is cut into; 1 if it has several tiles of tokens."""
        wanted = T.floordiv(pages * self.shape.page_size + _RANGE - 1, _RANGE)
        one_tile = tokens <= self.shape.tokens
        return bind(T.Select(one_tile, T.max(T.min(wanted, _RANGES), 1), T.int64(1)))

    def _count_tasks(self, b) -> None:
        """Prefix sums over sequences: tasks (of each KV head), and slots for partial sums."""
        store(self.first_task, T.int64(0), 0)
        store(self.first_slot, T.int64(0), 0)
        with T.serial(b) as s:
            _, tokens, keys = self._lengths(s)
            _, pages = self._key_pages(keys - tokens, keys)
            ranges = self._ranges(tokens, pages)
            tiles = T.floordiv(tokens + self.shape.tokens - 1, self.shape.tokens)
            store(self.first_task, self.first_task[s] + tiles * ranges, s + 1)
            used = T.Select(ranges > 1, tokens * ranges, T.int64(0))
            store(self.first_slot, self.first_slot[s] + used, s + 1)

    def _clear_padding(self, n, b) -> None:
        shape = self.shape
        lanes = shape.dim_lanes
        used = bind(T.Cast("int64", self.qo_indptr[b]))
        with T.serial(n - used) as t, T.serial(shape.heads) as h:
            with T.serial(shape.head_dim // lanes) as j:
                store(self.out, spread(0.0, lanes), used + t, h, span(j * lanes, lanes))

    def _run_task(self, task, scratch) -> None:
        """Find the sequence, the tile, the KV head and the range of keys, and do it."""
        shape = self.shape
        index = bind(T.floordiv(task, shape.kv_heads))
        sequence = T.alloc_buffer((1,), "int64", scope="local")
        store(sequence, T.int64(0), 0)
        with T.While(self.first_task[sequence[0] + 1] <= index):
            store(sequence, sequence[0] + 1, 0)
        s = bind(sequence[0])
        first, tokens, keys = self._lengths(s)
        local = bind(index - self.first_task[s])
        many = tokens > shape.tokens
        skipped = bind(T.Select(many, local * shape.tokens, T.int64(0)))
        count = bind(T.min(tokens - skipped, shape.tokens))
        position = bind(keys - tokens + skipped)
        page, pages = self._key_pages(position, position + count)
        ranges = self._ranges(tokens, pages)
        each = bind(T.floordiv(pages + ranges - 1, ranges))
        part = bind(T.Select(many, T.int64(0), local))
        begin = bind((page + part * each) * shape.page_size)
        tile = Tile(
            token=bind(first + skipped),
            rows=bind(count * shape.group),
            head=bind(T.floormod(task, shape.kv_heads)),
            position=position,
            first_page=bind(T.Cast("int64", self.page_indptr[s])),
            begin=begin,
            end=bind(T.min(begin + each * shape.page_size, position + count)),
        )
        self.tiles.run(tile, self.q, scratch)
        with T.If(ranges > 1):
            with T.Then():
                self._keep_part(tile, self.first_slot[s] + part * tokens, scratch)
            with T.Else():
                self._finish(tile, scratch)

    def _each_row(self, tile, body) -> None:
        """Emit body(row, token of the tile, head)."""
        group = self.shape.group
        with T.serial(tile.rows) as r:
            body(r, bind(T.floordiv(r, group)), bind(tile.head * group + T.floormod(r, group)))

    def _finish(self, tile, scratch) -> None:
        """out = sums / total."""
        lanes = self.shape.dim_lanes

        def row(r, token, head) -> None:
            total = scratch.total[r]
            inverse = bind(T.Select(total != T.float32(0), T.float32(1) / total, T.float32(0)))
            with T.serial(self.shape.head_dim // lanes) as j:
                at = span(j * lanes, lanes)
                value = scratch.sums[r, at] * spread(inverse, lanes)
                store(self.out, value, tile.token + token, head, at)

        self._each_row(tile, row)

    def _keep_part(self, tile, slot, scratch) -> None:
        """Keep the sums of this range of keys for `_merge`."""
        lanes = self.shape.dim_lanes
        slot = bind(slot)

        def row(r, token, head) -> None:
            store(self.part_top, scratch.top[r], slot + token, head)
            store(self.part_total, scratch.total[r], slot + token, head)
            with T.serial(self.shape.head_dim // lanes) as j:
                at = span(j * lanes, lanes)
                store(self.part_sums, scratch.sums[r, at], slot + token, head, at)

        self._each_row(tile, row)

    def _merge(self, s, kv_head) -> None:
        """Join the ranges of keys of one sequence, for the heads of one KV head."""
        shape = self.shape
        first, tokens, keys = self._lengths(s)
        _, pages = self._key_pages(keys - tokens, keys)
        ranges = self._ranges(tokens, pages)
        slot = bind(self.first_slot[s])
        with T.If(ranges > 1), T.Then(), T.serial(tokens) as t, T.serial(shape.group) as g:
            self._merge_row(slot + t, ranges, tokens, first + t, kv_head * shape.group + g)

    def _merge_row(self, slot, ranges, tokens, token, head) -> None:
        lanes = self.shape.dim_lanes
        top = T.alloc_buffer((1,), "float32", scope="local")
        total = T.alloc_buffer((1,), "float32", scope="local")
        weight = T.alloc_buffer((_RANGES,), "float32", scope="local")
        store(top, self.part_top[slot, head], 0)
        store(total, T.float32(0), 0)
        with T.serial(ranges) as c:
            store(top, T.max(top[0], self.part_top[slot + c * tokens, head]), 0)
        with T.serial(ranges) as c:
            store(weight, exp(self.part_top[slot + c * tokens, head] - top[0]), c)
            store(total, total[0] + self.part_total[slot + c * tokens, head] * weight[c], 0)
        inverse = bind(T.Select(total[0] != T.float32(0), T.float32(1) / total[0], T.float32(0)))
        acc = T.alloc_buffer((1,), self.shape.vector_type, scope="local")
        with T.serial(self.shape.head_dim // lanes) as j:
            at = span(j * lanes, lanes)
            store(acc, spread(0.0, lanes), 0)
            with T.serial(ranges) as c:
                part = self.part_sums[slot + c * tokens, head, at]
                store(acc, acc[0] + part * spread(weight[c], lanes), 0)
            store(self.out, acc[0] * spread(inverse, lanes), token, head, at)
