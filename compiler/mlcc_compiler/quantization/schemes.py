"""Schemes: how the numbers of one matrix are stored, as rows of three families.

    affine      code * scale, less a zero point or plus a minimum, one of each per group
                (Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, AWQ, GPTQ, MLX, int8 rows)
    two-level   groups whose scales (and minima) are small integers, times a float16 per block of
                256 weights (Q2_K to Q6_K) or 1,024 (our own k3 to k6)
    table       codes that are places in a table of 8, 16 or 32 values (IQ4_NL, IQ4_XS, MXFP4, NF4;
                our own t3 to t5), with scales of one level or two; or that are 8-bit floats
                (E4M3 of 256 values, `e4m3_g<group>` and `e4m3_row`). NVFP4 has groups whose scales
                are such floats, times a float32 per row

A weight of [N, K] with its group g = k // group and its block b = k // block is, in float32,

    scale   = scales[n, g]      or, two-level,  scales[n, b] * sub_scales[n, g]
    minimum = minima[n, g]      or, two-level,  minima[n, b] * sub_minima[n, g]
    weight  = (code - middle) * scale            offset "middle"
              (code - zeros[n, g]) * scale       offset "zeros"
              code * scale + minimum             offset "minima"
              table[code] * scale                a table

which is the arithmetic of GGUF's reference and of AWQ, to the bit (`quantized.py`). What of this
is stored where a kernel reads it is `kernels/*/linear/packing.py`'s; how a matrix comes to its
codes `codec.py`'s; which matrix gets which scheme `recipes.py`'s and `apply.py`'s.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from mlcc.errors import UnsupportedError

MIDDLE, ZEROS, MINIMA = "middle", "zeros", "minima"
"""Kinds of offset: see the module docstring."""

_LETTERS = {MIDDLE: "", ZEROS: "a", MINIMA: "m"}
_AFFINE = re.compile(r"int([2-8])([am]?)_(?:g([1-9]\d{0,5})|row)")
_E4M3 = re.compile(r"e4m3_(?:g([1-9]\d{0,5})|row)")


@dataclass(frozen=True)
class Scheme:
    """`bits` 16 and 32 are floats (`dtype` says which); 2 to 8 are codes with scales."""

    name: str
    bits: int
    group: int = 0
    """Weights along a row that share a scale; 0 = the whole row. Unused for floats."""
    offset: str = MIDDLE
    """"middle": the zero point is 2**(bits - 1), and not stored. "zeros": an integer zero point
    per group. "minima": a float16 per group is added, or, two-level, an integer times one."""
    dtype: str = "uint8"
    """Dtype of one stored element: float32, float16, bfloat16, uint8 codes, or float8_e4m3fn, codes
    that are the bits of such a float."""
    block: int = 0
    """Two-level: weights along a row that share a float16; the last block of a row may be shorter.
    0 = one level."""
    sub_range: tuple[int, int] = (0, 0)
    """Two-level: range of a group's integer scale; a minimum's is 0 .. the largest. (0, 0): scales
    of groups are 8-bit floats (E4M3), whose bits are stored."""
    table: tuple[float, ...] = ()
    """Values of the codes; () = the codes themselves, less the offset."""
    curve: tuple[int, int] | None = None
    """(a, c) of a computed table: see CURVES."""
    scale_dtype: str = "float16"
    """Dtype of `scales`: float16, float32, or uint8 for a power of two, 2**(byte - 127) (e8m0)."""

    @property
    def is_float(self) -> bool:
        return self.bits >= 16

    @property
    def is_e4m3(self) -> bool:
        """Whether codes are 8-bit floats; float32 scales of groups are at most E4M3_SCALE."""
        return self.dtype == "float8_e4m3fn"

    @property
    def is_nvfp4(self) -> bool:
        """Whether scales of groups are 8-bit floats, times a float32 per row."""
        return self.block == ROW

    @property
    def symmetric(self) -> bool:
        """Whether neither zero points nor minima are stored."""
        return self.offset == MIDDLE

    @property
    def levels(self) -> int:
        """The largest code."""
        return (1 << self.bits) - 1

    @property
    def middle(self) -> int:
        """The zero point of a symmetric scheme."""
        return 1 << (self.bits - 1)

    def fits(self, row: int) -> bool:
        """Whether a row of that length is whole groups, of whole steps of four."""
        group = self.group or row
        return self.is_float or (group % 4 == 0 and row % group == 0)

    def group_of(self, row: int) -> int:
        """Weights per scale in a row of that length. Raises UnsupportedError if they do not fit."""
        group = self.group if self.group > 0 else row
        if group % 4:
            raise UnsupportedError(
                f"scheme '{self.name}': group {group} is not a multiple of 4; "
                f"use one of {_groups_for(row)}"
            )
        if row % group:
            raise UnsupportedError(
                f"scheme '{self.name}': group {group} does not divide rows of {row}; "
                f"use group {_groups_for(row)}, or a float recipe such as bf16"
            )
        return group

    def groups_of(self, row: int) -> int:
        """Groups in a row. Raises UnsupportedError if they do not fit."""
        return row // self.group_of(row)

    def blocks_of(self, row: int) -> int:
        """Blocks in a row, the last perhaps shorter; with one level, as many as groups."""
        return -(-row // self.block) if self.block else self.groups_of(row)

    def bits_per_weight(self, row: int) -> float:
        """Bits stored in the artifact, including scales; integers of two-level schemes take a
        byte."""
        if self.is_float:
            return float(self.bits)
        groups, blocks = self.groups_of(row), self.blocks_of(row)
        numbers = 2 if self.offset == MINIMA else 1
        each = {"uint8": 8, "float16": 16, "float32": 32}[self.scale_dtype]
        stored = each * blocks * numbers + (8 * groups * numbers if self.block else 0)
        stored += 8 * groups if self.offset == ZEROS else 0
        return self.bits + stored / row


def affine(bits: int, group: int, offset: str = MIDDLE) -> Scheme:
    """A scheme of the affine family: "int4_g32", with zero points "int4a_g32", minima
    "int4m_g32"."""
    name = f"int{bits}{_LETTERS[offset]}" + (f"_g{group}" if group else "_row")
    return Scheme(name, bits, group, offset)


def e4m3(group: int) -> Scheme:
    """8-bit floats with a scale per group: "e4m3_g128"; of a row, 0: "e4m3_row"."""
    name = "e4m3" + (f"_g{group}" if group else "_row")
    return Scheme(name, 8, group, dtype="float8_e4m3fn", table=E4M3, scale_dtype="float32")


def needs_e4m3(how: Scheme) -> bool:
    """Whether only targets with kernels for 8-bit floats have kernels for it."""
    return how.is_e4m3 or how.is_nvfp4


def _two_level(name: str, bits: int, group: int, offset: str, sub_range: tuple[int, int]) -> Scheme:
    return Scheme(name, bits, group, offset, block=256, sub_range=sub_range)


def _own(bits: int, group: int, offset: str = MINIMA) -> Scheme:
    """This project's own two-level schemes: each group's integer uses the whole stored byte, and a
    float16 serves a thousand weights."""
    least = -128 if offset == MIDDLE else 0
    return Scheme(f"k{bits}_g{group}", bits, group, offset, block=1024, sub_range=(least, 127))


def _curved(bits: int, curve: tuple[int, int]) -> Scheme:
    """A two-level scheme with values on a curve, denser around zero, instead of evenly spaced
    levels and a minimum."""
    a, c = curve
    places = ((code + 0.5) / 2**bits - 0.5 for code in range(2**bits))
    table = tuple(math.floor(a * (t + 2 * t**3) - c + 0.5) for t in places)
    name, sub_range = f"t{bits}_g32", (-128, 127)
    return Scheme(name, bits, 32, block=1024, sub_range=sub_range, table=table, curve=curve)


IQ4 = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
"""The values of IQ4_NL and IQ4_XS (ggml)."""
CURVES = {3: (200, 6), 4: (184, 3), 5: (173, 4)}
"""Where 2**bits values lie well for normal weights, 32 of which share the scale that is best for
them: a (t + 2 t**3) - c of t = (code + 1/2) / 2**bits - 1/2, rounded. The best table of all (by
turns, scales for values and values for scales; Lloyd, 1982) has 2 % less error at 3 bits and none
less at 4 and 5; a GPU computes a curve sooner than it looks 32 values up."""
E2M1 = (0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6)
"""The values of a 4-bit float, by its bits (OCP Microscaling Formats 1.0)."""
ROW = 1 << 30
"""Weights of a block that is all of a row."""
NVFP4 = Scheme("nvfp4", 4, 16, table=E2M1, block=ROW, scale_dtype="float32")
FALLBACK = "int8_g32"
"""For values that no scheme holds, or none of a target (fp8, unordered groups)."""
E4M3_MOST = 448.0
E4M3_SCALE = 1.0
"""The largest scale of a group of `e4m3` schemes: kernels multiply 128 times a weight, 448 at most
and rounded to float16."""
NF4 = (
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453,
    -0.28444138169288635, -0.18477343022823334, -0.09105003625154495, 0.0,
    0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
    0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0,
)  # fmt: skip
"""The values of normal-float 4 (Dettmers et al., 2023), as bitsandbytes has them."""


def _e4m3() -> tuple[float, ...]:
    sizes = [m * 2.0**-9 for m in range(8)]
    sizes += [(8 + m) * 2.0 ** (exponent - 10) for exponent in range(1, 16) for m in range(8)]
    sizes[-1] = math.nan
    return (*sizes, *(-size for size in sizes))


E4M3 = _e4m3()
"""The values of float8_e4m3fn, by their bits: no infinities, 0x7f and 0xff are NaN (OCP OFP8)."""

SCHEMES = {
    row.name: row
    for row in (
        Scheme("f32", 32, dtype="float32"),
        Scheme("f16", 16, dtype="float16"),
        Scheme("bf16", 16, dtype="bfloat16"),
        *(affine(b, g, o) for b in (4, 8) for g in (16, 32, 64, 128, 0) for o in (MIDDLE, ZEROS)),
        *(affine(4, g, MINIMA) for g in (32, 64)),
        *(affine(5, 32, o) for o in (MIDDLE, MINIMA)),
        *(affine(b, 32) for b in (6, 3)),
        _two_level("q2_k", 2, 16, MINIMA, (0, 15)),
        _two_level("q3_k", 3, 16, MIDDLE, (-32, 31)),
        _two_level("q4_k", 4, 32, MINIMA, (0, 63)),
        _two_level("q5_k", 5, 32, MINIMA, (0, 63)),
        _two_level("q6_k", 6, 16, MIDDLE, (-128, 127)),
        *(_own(b, g) for b in (3, 4, 5) for g in (32, 64)),
        _own(6, 32, MIDDLE),
        *(_curved(bits, curve) for bits, curve in CURVES.items()),
        Scheme("iq4_nl", 4, 32, table=IQ4),
        Scheme("iq4_xs", 4, 32, table=IQ4, block=256, sub_range=(-32, 31)),
        Scheme("mxfp4", 4, 32, table=E2M1, scale_dtype="uint8"),
        Scheme("nf4", 4, 64, table=NF4, scale_dtype="float32"),
    )
}
"""The schemes with a name of their own, and the affine rows that recipes use; any other affine row
is known by its name too (`scheme`)."""


def scheme(name: str) -> Scheme:
    """A scheme by name: a row of SCHEMES, "nvfp4", "int<2..8>[a|m]_g<group>", "e4m3_g<group>" and
    "..._row".

    Raises UnsupportedError.
    """
    if name in SCHEMES:
        return SCHEMES[name]
    if found := _AFFINE.fullmatch(name):
        bits, letter, group = found.groups()
        offset = next(o for o, written in _LETTERS.items() if written == letter)
        return affine(int(bits), int(group or 0), offset)
    if name == NVFP4.name:
        return NVFP4
    if found := _E4M3.fullmatch(name):
        return e4m3(int(found[1] or 0))
    raise UnsupportedError(f"unknown scheme '{name}'; use one of: {', '.join(SCHEMES)}")


def anew(name: str) -> str:
    """The scheme for values that a checkpoint has in scheme `name`, and which cannot be kept."""
    how = scheme(name)
    return FALLBACK if how.is_e4m3 else "int8_g16" if how.is_nvfp4 else name


def fitting(how: Scheme, row: int) -> Scheme:
    """`how`, or the nearest scheme that rows of that length support.

    The same bits in smaller groups, the largest that divide the row; where that would be fewer than
    eight weights, bfloat16.
    """
    if how.fits(row):
        return how
    offset = MIDDLE if how.table else how.offset
    most = min(how.group or 32, row)
    for step in (8, 4):
        if group := next((g for g in range(most - most % step, 7, -step) if row % g == 0), 0):
            return affine(how.bits, group, offset)
    return SCHEMES["bf16"]


def _groups_for(row: int) -> str:
    """Group sizes that fit a row, for messages."""
    fitting = [g for g in (128, 64, 32, 16, 8, 4) if row % g == 0]
    return ", ".join(map(str, fitting)) if fitting else "(none fits: rows must be multiples of 4)"
