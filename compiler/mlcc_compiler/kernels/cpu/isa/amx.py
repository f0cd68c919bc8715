"""AMX: tile registers of 16 rows of 64 bytes, products of two bf16 tiles accumulated in float32,
and of two tiles of signed bytes in int32.

As TVM has no AMX intrinsics, kernels call functions given as LLVM IR text, which are inlined. The
eight registers have fixed roles: a square of sums, 32 rows by 32 columns, is in 0 to 3, row by row;
32 numbers of each row are in 4 and 5, of each column in 6 and 7, two of a column in each 32 bits.
LLVM treats the calls as reads and writes of memory, so nothing is moved past them.

Products of bytes (`byte_tiles`) have roles of their own: two strips of at most 16 rows of x, 32
bytes of each, in 4 and 5; 16 columns, 32 bytes deep, in 6 and in 7; the sums of a strip in 0 and 1,
and in 2 and 3.

A thread configures its registers first and releases them last (`tiles`); permission for the process
is `mlcc.util.machine`. Source: Intel's Architecture Instruction Set Extensions Programming
Reference, "Intel AMX". Knows nothing of matrix layouts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from mlcc_compiler.ir._tvm import B, T
from mlcc_compiler.kernels.cpu.isa.bf16_pairs import PAIR_IR

Expr = Any

SIDE = 32
"""Rows and columns of the square of sums."""
DEPTH = 32
"""Products per step and sum."""
STEP_WORDS = DEPTH * SIDE // 2
"""32-bit words of a step's columns: [2, 16 pairs, 16 columns]."""

_SHAPE = "\\01" + "\\00" * 15 + "\\40\\00" * 8 + "\\00" * 16 + "\\10" * 8 + "\\00" * 8
"""Palette 1, eight times 64 bytes, eight times 16 rows."""

_BYTE_SHAPE = (
    "\\01"
    + "\\00" * 15
    + "\\40\\00" * 4
    + "\\20\\00" * 2
    + "\\40\\00" * 2
    + "\\00" * 16
    + "\\10" * 6
    + "\\08" * 2
    + "\\00" * 8
)
"""The same with tiles of x of 32 bytes and tiles of columns of 8 rows."""
_BYTE_ROWS = "\n".join(
    f"  %shape{i + 1} = insertelement <64 x i8> {f'%shape{i}' if i else '%template'}, i8 %few, "
    f"i64 {48 + i}"
    for i in range(6)
)
"""Of the tiles of x and of sums."""


def _multiply_bytes(kind: str, instruction: str) -> str:
    """LLVM IR of two products of x with columns of signed or of unsigned bytes."""
    return f"""
define linkonce_odr hidden void @mlcc_byte_tiles_{kind}(ptr %x0, ptr %x1, i64 %x_pitch, ptr %w0,
    ptr %w1, i64 %w_pitch, ptr %s0, ptr %s1, i64 %half) alwaysinline {{
  %right0 = getelementptr i8, ptr %w0, i64 64
  %right1 = getelementptr i8, ptr %w1, i64 64
  %t0 = getelementptr i8, ptr %s0, i64 %half
  %t1 = getelementptr i8, ptr %s1, i64 %half
  call void @llvm.x86.tileloadd64(i8 4, ptr %x0, i64 %x_pitch)
  call void @llvm.x86.tileloadd64(i8 6, ptr %w0, i64 %w_pitch)
  call void @llvm.x86.tilezero(i8 0)
  call void @llvm.x86.{instruction}(i8 0, i8 4, i8 6)
  call void @llvm.x86.tileloadd64(i8 7, ptr %right0, i64 %w_pitch)
  call void @llvm.x86.tilezero(i8 1)
  call void @llvm.x86.{instruction}(i8 1, i8 4, i8 7)
  call void @llvm.x86.tileloadd64(i8 5, ptr %x1, i64 %x_pitch)
  call void @llvm.x86.tileloadd64(i8 6, ptr %w1, i64 %w_pitch)
  call void @llvm.x86.tilezero(i8 2)
  call void @llvm.x86.{instruction}(i8 2, i8 5, i8 6)
  call void @llvm.x86.tileloadd64(i8 7, ptr %right1, i64 %w_pitch)
  call void @llvm.x86.tilezero(i8 3)
  call void @llvm.x86.{instruction}(i8 3, i8 5, i8 7)
  call void @llvm.x86.tilestored64(i8 0, ptr %s0, i64 64)
  call void @llvm.x86.tilestored64(i8 1, ptr %t0, i64 64)
  call void @llvm.x86.tilestored64(i8 2, ptr %s1, i64 64)
  call void @llvm.x86.tilestored64(i8 3, ptr %t1, i64 64)
  ret void
}}"""


_IR = f"""
@mlcc_tile_shape = linkonce_odr hidden constant [64 x i8] c"{_SHAPE}", align 64
define linkonce_odr hidden void @mlcc_tiles_begin() alwaysinline {{
  call void @llvm.x86.ldtilecfg(ptr @mlcc_tile_shape)
  ret void
}}
define linkonce_odr hidden void @mlcc_tiles_end() alwaysinline {{
  call void @llvm.x86.tilerelease()
  ret void
}}
define linkonce_odr hidden void @mlcc_tiles_zero() alwaysinline {{
  call void @llvm.x86.tilezero(i8 0)
  call void @llvm.x86.tilezero(i8 1)
  call void @llvm.x86.tilezero(i8 2)
  call void @llvm.x86.tilezero(i8 3)
  ret void
}}
define linkonce_odr hidden void @mlcc_tiles_load(ptr %sums, i64 %pitch) alwaysinline {{
  %half = mul i64 %pitch, 16
  %right = getelementptr i8, ptr %sums, i64 64
  %lower = getelementptr i8, ptr %sums, i64 %half
  %last = getelementptr i8, ptr %lower, i64 64
  call void @llvm.x86.tileloadd64(i8 0, ptr %sums, i64 %pitch)
  call void @llvm.x86.tileloadd64(i8 1, ptr %right, i64 %pitch)
  call void @llvm.x86.tileloadd64(i8 2, ptr %lower, i64 %pitch)
  call void @llvm.x86.tileloadd64(i8 3, ptr %last, i64 %pitch)
  ret void
}}
define linkonce_odr hidden void @mlcc_tiles_store(ptr %sums, i64 %pitch) alwaysinline {{
  %half = mul i64 %pitch, 16
  %right = getelementptr i8, ptr %sums, i64 64
  %lower = getelementptr i8, ptr %sums, i64 %half
  %last = getelementptr i8, ptr %lower, i64 64
  call void @llvm.x86.tilestored64(i8 0, ptr %sums, i64 %pitch)
  call void @llvm.x86.tilestored64(i8 1, ptr %right, i64 %pitch)
  call void @llvm.x86.tilestored64(i8 2, ptr %lower, i64 %pitch)
  call void @llvm.x86.tilestored64(i8 3, ptr %last, i64 %pitch)
  ret void
}}
define linkonce_odr hidden void @mlcc_tiles_add(ptr %upper, ptr %lower, i64 %row_pitch,
    ptr %left, ptr %right, i64 %column_pitch) alwaysinline {{
  call void @llvm.x86.tileloadd64(i8 6, ptr %left, i64 %column_pitch)
  call void @llvm.x86.tileloaddt164(i8 4, ptr %upper, i64 %row_pitch)
  call void @llvm.x86.tileloadd64(i8 7, ptr %right, i64 %column_pitch)
  call void @llvm.x86.tileloaddt164(i8 5, ptr %lower, i64 %row_pitch)
  call void @llvm.x86.tdpbf16ps(i8 0, i8 4, i8 6)
  call void @llvm.x86.tdpbf16ps(i8 1, i8 4, i8 7)
  call void @llvm.x86.tdpbf16ps(i8 2, i8 5, i8 6)
  call void @llvm.x86.tdpbf16ps(i8 3, i8 5, i8 7)
  ret void
}}
@mlcc_byte_tile_shape = linkonce_odr hidden constant [64 x i8] c"{_BYTE_SHAPE}", align 64
define linkonce_odr hidden void @mlcc_byte_tiles_begin(ptr %shape, i64 %rows) alwaysinline {{
  %template = load <64 x i8>, ptr @mlcc_byte_tile_shape
  %few = trunc i64 %rows to i8
{_BYTE_ROWS}
  store <64 x i8> %shape6, ptr %shape, align 1
  call void @llvm.x86.ldtilecfg(ptr %shape)
  ret void
}}
{_multiply_bytes("signed", "tdpbssd")}
{_multiply_bytes("unsigned", "tdpbsud")}
declare void @llvm.x86.ldtilecfg(ptr)
declare void @llvm.x86.tilerelease()
declare void @llvm.x86.tilezero(i8 immarg)
declare void @llvm.x86.tileloadd64(i8 immarg, ptr, i64)
declare void @llvm.x86.tileloaddt164(i8 immarg, ptr, i64)
declare void @llvm.x86.tilestored64(i8 immarg, ptr, i64)
declare void @llvm.x86.tdpbf16ps(i8 immarg, i8 immarg, i8 immarg)
declare void @llvm.x86.tdpbssd(i8 immarg, i8 immarg, i8 immarg)
declare void @llvm.x86.tdpbsud(i8 immarg, i8 immarg, i8 immarg)
"""


@contextmanager
def imported(others: str = "") -> Iterator[None]:
    """Inside, the functions below may be emitted, and those of other LLVM IR."""
    with B.attr(T.int32(0), "pragma_import_llvm", _IR + PAIR_IR + others):
        yield


@contextmanager
def tiles() -> Iterator[None]:
    """Configure the thread's tile registers inside the block."""
    _call("mlcc_tiles_begin")
    yield
    _call("mlcc_tiles_end")


@contextmanager
def byte_tiles(rows: Expr) -> Iterator[None]:
    """Configure the thread's tile registers inside the block, for products of bytes: strips of
    1 to 16 rows."""
    shape = B.alloc_buffer((64,), "uint8")
    _call("mlcc_byte_tiles_begin", T.address_of(shape[0]), rows)
    yield
    _call("mlcc_tiles_end")


def multiply_bytes(
    x: Sequence[Expr],
    x_pitch: int,
    columns: Sequence[Expr],
    pitch: int,
    sums: Sequence[Expr],
    half: int,
    signed: bool,
) -> None:
    """Emit two products: 32 bytes of each row of a strip of x, rows `x_pitch` bytes apart, times
    32 columns, whose fours of bytes are `pitch` bytes apart. Addresses are given in pairs. Sums are
    16 rows of 16 int32, those of the right 16 columns `half` bytes behind those of the left.
    `signed`: whether the columns' bytes are; those of x always are."""
    numbers = [T.int64(each) for each in (x_pitch, pitch, half)]
    name = "mlcc_byte_tiles_signed" if signed else "mlcc_byte_tiles_unsigned"
    _call(name, *x, numbers[0], *columns, numbers[1], *sums, numbers[2])


def zero() -> None:
    """Emit: zero all sums."""
    _call("mlcc_tiles_zero")


def load(sums: Expr, pitch: int) -> None:
    """Emit: load the sums from an address, 32 rows of float32 `pitch` bytes apart."""
    _call("mlcc_tiles_load", sums, T.int64(pitch))


def store(sums: Expr, pitch: int) -> None:
    """Emit: store the sums to an address."""
    _call("mlcc_tiles_store", sums, T.int64(pitch))


def add(rows: Sequence[Expr], row_pitch: int, columns: Sequence[Expr], column_pitch: int) -> None:
    """Emit a step: 32 rows times 32 columns, 32 bf16 of each. `rows` are the addresses of the upper
    and of the lower 16 rows, `row_pitch` bytes apart; `columns` those of the left and of the right
    16 columns, whose pairs are `column_pitch` bytes apart."""
    _call("mlcc_tiles_add", *rows, T.int64(row_pitch), *columns, T.int64(column_pitch))


def _call(name: str, *arguments: Expr) -> None:
    B.evaluate(T.call_extern("void", name, *arguments))
