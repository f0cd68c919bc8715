"""CPU instruction sets: vector width, registers, and byte dot products.

x86: SSE2, AVX2, AVX-VNNI, AVX-512, AVX512-VNNI, AMX. Arm: NEON, with dotprod (sdot) and i8mm
(smmla). All other CPUs: `generic`.
Derived from a target row's architecture and feature list, never from the machine that compiles.
`dot4` is the only place with instruction names; everything else is portable vector TIR.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

from mlcc_compiler.ir._tvm import B, T

Expr = Any
"""A TVM expression; TVM ships no types for them."""


@dataclass(frozen=True)
class Isa:
    """One kind of CPU. `lanes` counts 32-bit elements of a vector register."""

    name: str
    vector_bits: int
    dot: str
    """avx512vnni, avxvnni, avx2, sse2, neon_i8mm, neon_dotprod, neon or generic: see `dot4`."""
    registers: int
    """Architectural vector registers: bounds the register tiles."""
    has_f16: bool = False
    """Whether float16 vectors convert to float32 in one instruction."""
    has_bf16: bool = False
    """Whether products of bf16 pairs are accumulated in float32: see `bf16_pairs.py`."""
    has_permutes: bool = False
    """Whether 64-byte table lookups exist: see `linear/weights/permute_lookup.py`."""
    has_tiles: bool = False
    """Whether AMX exists, and conversions to bf16: see `amx.py`."""
    activation_dtype: str = "float32"
    """Dtype of the activations between operators."""
    activation_parts: int = 1
    """int8 numbers per activation in products with codes: 2 are 16 bits."""
    small_code: bool = False
    """Whether kernels have few variants of their loops: for a CPU that few have, where code has to
    be right and not fast, as all compiles for `any` pay for it."""
    tile_columns: int = 0
    """Columns of a tile of a stored matrix; 0 = two vectors. Set by a target's row, as the next
    field."""
    stored_signed: bool | None = None
    """Whether 8-bit codes are stored minus 128; None = as the dot product takes them."""

    @property
    def lanes(self) -> int:
        return self.vector_bits // 32

    @property
    def signed_codes(self) -> bool:
        """Whether the dot product takes 8-bit codes minus 128, as signed bytes. SSE2 could take
        either; it uses Arm's form, so that one Android folder serves both."""
        return self.dot in ("avx2", "sse2", "neon_i8mm", "neon_dotprod", "neon")

    @property
    def shuffles_bytes(self) -> bool:
        """Whether `byte_shuffle` is an instruction or two, not a comparison with every index."""
        return self.dot.startswith("neon") or _pshufb(self) is not None

    @property
    def flips_codes(self) -> bool:
        """Whether 8-bit codes are stored in the other form than the dot product takes."""
        return self.stored_signed not in (None, self.signed_codes)

    @classmethod
    def from_features(cls, arch: str, features: Collection[str]) -> "Isa":
        """The best row for an architecture ('x86_64', 'aarch64', other) and LLVM feature names."""
        have = {name.lstrip("+") for name in features if not name.startswith("-")}
        rows = _ROWS.get(arch, ())
        return next((isa for needs, isa in rows if have.issuperset(needs)), GENERIC)


GENERIC = Isa("generic", 128, "generic", 16)
AVX512_VNNI = Isa("avx512-vnni", 512, "avx512vnni", 32, True)
AVX512_VBMI = replace(AVX512_VNNI, name="avx512-vbmi", has_permutes=True)
AVX512_BF16 = replace(AVX512_VBMI, name="avx512-bf16", has_bf16=True)
AVX512_AMX = replace(AVX512_VBMI, name="avx512-amx", has_tiles=True)
"""Without VDPBF16PS, which Intel's CPUs run at a quarter of the speed of a multiply-add."""
AVX2_VNNI = Isa("avx2-vnni", 256, "avxvnni", 16, True)
AVX2 = Isa("avx2", 256, "avx2", 16, True)
SSE2 = Isa("sse2", 128, "sse2", 16, small_code=True)
NEON_I8MM = Isa("neon-i8mm", 128, "neon_i8mm", 32, True)
NEON_DOTPROD = Isa("neon-dotprod", 128, "neon_dotprod", 32, True)
NEON = Isa("neon", 128, "neon", 32, True)

_AVX512_VNNI = ("avx512f", "avx512bw", "avx512vl", "avx512vnni")
_AVX512_BF16 = (*_AVX512_VNNI, "avx512vbmi", "avx512bf16")
_ROWS: dict[str, tuple[tuple[tuple[str, ...], Isa], ...]] = {
    "x86_64": (
        ((*_AVX512_BF16, "amx-tile", "amx-bf16", "amx-int8"), AVX512_AMX),
        (_AVX512_BF16, AVX512_BF16),
        ((*_AVX512_VNNI, "avx512vbmi"), AVX512_VBMI),
        (_AVX512_VNNI, AVX512_VNNI),
        (("avx2", "fma", "f16c", "avxvnni"), AVX2_VNNI),
        (("avx2", "fma", "f16c"), AVX2),
        ((), SSE2),
    ),
    "aarch64": (
        (("dotprod", "i8mm"), NEON_I8MM),
        (("dotprod",), NEON_DOTPROD),
        ((), NEON),
    ),
}


def dot4(isa: Isa, acc: Expr, codes: Expr, x: Expr, bits: int = 8) -> Expr:
    """acc i32xL + the sums of four products codes * x in each lane.

    `codes` is u8x4L holding 0 .. 2**bits - 1, or, if bits == 8 and `isa.signed_codes`, code - 128
    as two's complement. `x` is s8x4L in -127 .. 127: -128 would overflow the AVX2 form.
    """
    lanes = isa.lanes
    i32, i8 = f"int32x{lanes}", f"int8x{4 * lanes}"
    if isa.dot in ("avx512vnni", "avxvnni"):
        name = f"llvm.x86.avx512.vpdpbusd.{isa.vector_bits}"
        return _call(name, i32, acc, codes, x)
    if isa.dot in ("neon_i8mm", "neon_dotprod"):  # 4-bit codes are the same number signed
        return _call("llvm.aarch64.neon.sdot", i32, acc, T.reinterpret(i8, codes), x)
    if isa.dot == "avx2":
        return _dot4_avx2(lanes, acc, codes, x, bits)
    if isa.dot == "sse2":
        return _dot4_sse2(acc, codes, x, bits)
    if isa.dot == "neon":
        return _dot4_neon(acc, codes, x)
    return _dot4_generic(lanes, acc, codes, x)


def matrix_dot(acc: Expr, rows: Expr, columns: Expr) -> Expr:
    """acc i32x4, [r0 c0, r0 c1, r1 c0, r1 c1], + the products of two rows with two columns, eight
    bytes of each: s8x16. For `neon_i8mm` only."""
    return _call("llvm.aarch64.neon.smmla", "int32x4", acc, rows, columns)


def byte_shuffle(isa: Isa, table: Sequence[int], index: Expr) -> Expr:
    """table[index] for every byte of u8x4L `index`; `table` has 8, 16 or 32 bytes."""
    index, neon = B.bind(index), isa.dot.startswith("neon")
    name = "llvm.aarch64.neon.tbl1" if neon else _pshufb(isa)
    if name is None:
        return _select(table, index, 4 * isa.lanes)
    low = _shuffled(name, isa.lanes, table[:16], index)
    if len(table) <= 16:
        return low
    fifth = T.Broadcast(T.uint8(16), 4 * isa.lanes)
    if neon:  # whose shuffle gives 0 for an index that is too large
        return low | _shuffled(name, isa.lanes, table[16:], index ^ fifth)
    high = _shuffled(name, isa.lanes, table[16:], index)  # whose shuffle sees four bits
    return T.Select((index & fifth) == fifth, high, low)


def _shuffled(name: str, lanes: int, table: Sequence[int], index: Expr) -> Expr:
    kind = f"uint8x{4 * lanes}"
    words = [int.from_bytes(bytes(table[i : i + 4]), "little") for i in range(0, 16, 4)]
    spread = [T.Broadcast(T.uint32(word), lanes) for word in words]
    values = T.Shuffle(spread, [i % 4 * lanes + i for i in range(lanes)])
    return _call(name, kind, T.reinterpret(kind, values), index)


_SHUFFLES = {
    ("avx512", 512): "llvm.x86.avx512.pshuf.b.512",
    ("avx", 256): "llvm.x86.avx2.pshuf.b",
    ("avx2", 256): "llvm.x86.avx2.pshuf.b",
}
"""Of each 16 bytes on their own, as the table lies in all of them."""


def _pshufb(isa: Isa) -> str | None:
    return _SHUFFLES.get((isa.dot.removesuffix("vnni"), isa.vector_bits))


def _select(table: Sequence[int], index: Expr, lanes: int) -> Expr:
    """By comparing with every index: for SSE2, whose shuffles are fixed, and unknown CPUs. At most
    one comparison is true, so "xor" joins what they add to the first value."""
    found, none = T.Broadcast(T.uint8(table[0]), lanes), T.Broadcast(T.uint8(0), lanes)
    for i, value in enumerate(table[1:], 1):
        here = index == T.Broadcast(T.uint8(i), lanes)
        found = found ^ T.Select(here, T.Broadcast(T.uint8(value ^ table[0]), lanes), none)
    return found


def _dot4_avx2(lanes: int, acc: Expr, codes: Expr, x: Expr, bits: int) -> Expr:
    """u8 * s8 pairs saturate at 2**15: safe for 4 bits; 8 bits go as |w| * sign(x, w)."""
    i16, i32, i8 = f"int16x{2 * lanes}", f"int32x{lanes}", f"int8x{4 * lanes}"
    if bits == 8:
        signed = T.reinterpret(i8, codes)
        x = _call("llvm.x86.avx2.psign.b", i8, x, signed)
        codes = T.reinterpret(f"uint8x{4 * lanes}", _call("llvm.abs", i8, signed, T.bool(False)))
    pairs = _call("llvm.x86.avx2.pmadd.ub.sw", i16, codes, x)
    ones = T.Broadcast(T.int16(1), 2 * lanes)
    return acc + _call("llvm.x86.avx2.pmadd.wd", i32, pairs, ones)


def _dot4_sse2(acc: Expr, codes: Expr, x: Expr, bits: int) -> Expr:
    """Even and odd bytes as 16-bit numbers, each half by one multiply-add of pairs."""
    words, values = T.reinterpret("int16x8", codes), T.reinterpret("int16x8", x)
    byte = T.Broadcast(T.int16(8), 8)
    even = (words << byte) >> byte if bits == 8 else words & T.Broadcast(T.int16(255), 8)
    odd = words >> byte
    sums = _call("llvm.x86.sse2.pmadd.wd", "int32x4", even, (values << byte) >> byte)
    return acc + sums + _call("llvm.x86.sse2.pmadd.wd", "int32x4", odd, values >> byte)


def _dot4_neon(acc: Expr, codes: Expr, x: Expr) -> Expr:
    """Products in 16 bits, added in pairs twice; |code * x| <= 128 * 127, so two still fit."""
    signed = T.reinterpret("int8x16", codes)
    low, high = (
        _call("llvm.aarch64.neon.smull", "int16x8", T.Shuffle([signed], half), T.Shuffle([x], half))
        for half in (list(range(8)), list(range(8, 16)))
    )
    pairs = _call("llvm.aarch64.neon.addp", "int16x8", low, high)
    return acc + _call("llvm.aarch64.neon.saddlp", "int32x4", pairs)


def _dot4_generic(lanes: int, acc: Expr, codes: Expr, x: Expr) -> Expr:
    """Byte by byte in 32-bit lanes, with shifts only."""
    u32, i32 = f"uint32x{lanes}", f"int32x{lanes}"
    words, values = T.reinterpret(u32, codes), T.reinterpret(i32, x)
    for byte in range(4):
        code = (words >> T.Broadcast(T.uint32(8 * byte), lanes)) & T.Broadcast(T.uint32(255), lanes)
        value = (values << T.Broadcast(T.int32(24 - 8 * byte), lanes)) >> T.Broadcast(
            T.int32(24), lanes
        )
        acc = acc + T.Cast(i32, code) * value
    return acc


def _call(name: str, dtype: str, *args: Expr) -> Expr:
    return T.call_llvm_pure_intrin(dtype, T.llvm_lookup_intrinsic_id(name), *args)
