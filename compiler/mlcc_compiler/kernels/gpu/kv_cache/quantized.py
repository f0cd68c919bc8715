"""8-bit keys and values on the GPU: how a team of threads rounds a token's head, and how words of
four numbers are unpacked.

The rule of integers and its exceptions are the CPU's (`cpu/kv_cache/int8.py`), to within one unit
where a product lies between two integers: drivers may divide and fuse differently. 8-bit floats
(E4M3) have the same scales, so that a head's largest magnitude becomes 448.
"""

from __future__ import annotations

from collections.abc import Callable

from mlcc_compiler.ir._tvm import T, tirx
from mlcc_compiler.ir.layout import KvLayout
from mlcc_compiler.kernels.frame import (
    Expr,
    PrimFunc,
    activations,
    i32,
    kernel,
    page_arguments,
    store,
)
from mlcc_compiler.kernels.gpu.device import Gpu
from mlcc_compiler.kernels.gpu.linear.fragments import mma, mma_fp8
from mlcc_compiler.kernels.gpu.workgroup import (
    Local,
    bind,
    ceil_div,
    int32,
    largest,
    launch,
    real,
    reduce,
    when,
)
from mlcc_compiler.kernels.int8 import INFINITE, LARGEST_INT8, MAGNITUDE, ROUNDING, SMALLEST
from mlcc_compiler.quantization.schemes import E4M3_MOST

LANES = 32
"""Threads of a team."""
_WORD = 4  # numbers in a word


def numbers_of(gpu: Gpu, layout: KvLayout, word: Expr) -> list[Expr]:
    """The four numbers of a word of 8-bit pages as float32, the lowest first, not yet scaled."""
    return _floats(word) if layout.is_fp8 else _signed_bytes(gpu, word)


def _floats(word: Expr) -> list[Expr]:
    pairs = [bind(mma.halves_of_fp8(word, side)) for side in ("low", "high")]
    halves = [bind((pair >> T.uint32(16 * x)).astype("uint16")) for pair in pairs for x in range(2)]
    return [T.reinterpret("float16", half).astype("float32") for half in halves]


def _signed_bytes(gpu: Gpu, word: Expr) -> list[Expr]:
    if gpu.narrow_types:
        bytes_ = [(word >> T.uint32(8 * x)).astype("int8") for x in range(_WORD)]
    else:
        top = [T.reinterpret("int32", word << T.uint32(24 - 8 * x)) for x in range(_WORD)]
        bytes_ = [number >> 24 for number in top]
    return [number.astype("float32") for number in bytes_]


def append_quantized(gpu: Gpu, layout: KvLayout) -> PrimFunc:
    """The CPU's `append_int8`, also for 8-bit floats, with numbers packed in words: pages
    u32[num_pages, 2, kv_heads, page_size, head_dim / 4]. A team for each head of a token's key and
    value."""
    kv_heads, head_dim = layout.kv_heads, layout.head_dim
    teams, parts = gpu.threads // LANES, 2 * layout.kv_heads

    def body(k: Expr, v: Expr, slots: Expr, pages: Expr, scales: Expr) -> None:
        count = int32(slots.shape[0]) * parts
        grid = (ceil_div(slots.shape[0] * parts, teams),)
        with launch(grid, (LANES, teams)) as (block, lane, team):
            task = bind(T.min(block * teams + team, count - 1))
            i, part = bind(task // parts), bind(task % parts)
            which = bind(T.if_then_else(part < kv_heads, 0, 1))
            h = bind(part - which * kv_heads)

            def value(d: Expr) -> Expr:
                return T.if_then_else(which == 0, k[i, h, d], v[i, h, d])

            head = RoundedHead(gpu, head_dim, value, lane, team, teams)
            slot = bind(slots[i])
            with when(tirx.all(block * teams + team < count, slot >= 0)):
                head.store(layout, pages, scales, slot, which, h)

    rows = activations(gpu, "n", kv_heads, head_dim)
    return kernel(body, k=rows, v=rows, token_slots=i32("n"), **page_arguments(layout))


def _integers(four: list[Expr]) -> Expr:
    """A word of four numbers rounded to the nearest even integers."""
    packed = T.uint32(0)
    for x, number in enumerate(four):
        moved = bind(number + real(ROUNDING))
        low = T.bitwise_and(T.reinterpret("uint32", moved), T.uint32(255))
        packed = T.bitwise_or(packed, low << T.uint32(8 * x))
    return packed


class RoundedHead:
    """`size` numbers of a head in the registers of a team's threads, and their scale. All threads
    of a workgroup make one together: it has barriers."""

    def __init__(
        self,
        gpu: Gpu,
        size: int,
        value: Callable[[Expr], Expr],
        lane: Expr,
        team: Expr,
        teams: int,
    ) -> None:
        self.words, self.lane = size // _WORD, lane
        self.values = Local(_WORD * -(-self.words // LANES))
        top = Local(1, "int32")
        top[0] = T.int32(0)

        def load(word: Expr, first: int) -> None:
            for x in range(_WORD):
                number = bind(value(word * _WORD + x))
                self.values[first + x] = number
                bits = T.bitwise_and(T.reinterpret("int32", number), T.int32(MAGNITUDE))
                top[0] = T.max(top[0], bits)

        self.each_word(load)
        bits = reduce(gpu, top[0], largest, lane, LANES, team, teams)
        self.magnitude = bind(T.reinterpret("float32", bits))
        self.rounds = bind(tirx.all(bits >= SMALLEST, bits < INFINITE))

    def each_word(self, body: Callable[[Expr, int], None]) -> None:
        """Emit body(word, index of its first number in `values`) for this thread's words."""
        for k in range(-(-self.words // LANES)):
            word = self.lane + k * LANES  # not in a register: TVM knows how large it is
            with when(word < self.words):
                body(word, k * _WORD)

    def store(
        self, layout: KvLayout, pages: Expr, scales: Expr, slot: Expr, which: Expr, head: Expr
    ) -> None:
        """Write it to the pages."""
        place = slot // layout.page_size, which, head, slot % layout.page_size
        divisor = T.if_then_else(self.rounds, self.magnitude, real(1))
        largest_code = real(E4M3_MOST if layout.is_fp8 else LARGEST_INT8)
        factor = bind(largest_code / divisor)

        def pack(word: Expr, first: int) -> None:
            four = [bind(self.values[first + x] * factor) for x in range(_WORD)]
            packed = mma_fp8.rounded(four) if layout.is_fp8 else _integers(four)
            store(pages, T.if_then_else(self.rounds, packed, T.uint32(0)), *place, word)

        self.each_word(pack)
        with when(self.lane == 0):
            store(scales, self.magnitude / largest_code, *place)

    def copy(self, out: Expr, *place: Expr) -> None:
        """Write it unrounded to out[place, d]."""

        def put(word: Expr, first: int) -> None:
            for x in range(_WORD):
                store(out, self.values[first + x], *place, word * _WORD + x)

        self.each_word(put)
