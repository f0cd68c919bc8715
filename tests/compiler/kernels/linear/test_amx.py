"""Products of many rows by AMX against the twin. On a CPU without AMX its instructions are emulated
(`amx_emulator`)."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

from mlcc_compiler.ir._tvm import B, IRBuilder, T, tvm
from mlcc_compiler.kernels.cpu.attention.attention import paged_attention
from mlcc_compiler.kernels.cpu.elementwise import norm
from mlcc_compiler.kernels.cpu.elementwise.activation import activated, gated_fused
from mlcc_compiler.kernels.cpu.isa import amx, isa
from mlcc_compiler.kernels.cpu.linear import linear
from mlcc_compiler.kernels.cpu.linear.amx_bytes import LEAST, multiplies_bytes
from mlcc_compiler.kernels.cpu.linear.amx_gated import activated_many, gated_many
from mlcc_compiler.kernels.cpu.linear.amx_gemm import (
    linear_many,
    uses_amx,
)
from mlcc_compiler.kernels.cpu.linear.amx_outputs import can_write_tiles, fuse_to_tiles
from mlcc_compiler.kernels.cpu.linear.amx_rows import (
    MANY,
    TILE,
    least_rows,
    round_to_tiles,
    rows_or_tiles,
    tiles_of,
)
from mlcc_compiler.kernels.cpu.linear.quantized import Part, linear_merged
from mlcc_compiler.kernels.fused_kernels import fuse_kernels
from mlcc_compiler.quantization import Scheme, dequantize, scheme
from tests.compiler.kernels.cases import linear_twin as lt
from tests.compiler.kernels.cases.attention import Case, inputs
from tests.compiler.kernels.cases.scheme import AFFINE, TABLES, TWO_LEVEL, extreme
from tests.helpers.emulators import amx_emulator

CPU, BEFORE = isa.AVX512_AMX, isa.AVX512_VBMI
SQUARE = 4
"""Instructions of a step: a square's registers."""

runs_here = pytest.mark.skipif(
    not amx_emulator.runs_here(), reason="needs Linux, and a CPU with AVX512-BF16"
)


def bits_of(x: Any) -> Any:
    """The nearest bf16, a tie to the even one; of numbers that are finite."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def floats(bits: Any) -> Any:
    return (bits.astype(np.uint32) << 16).view(np.float32)


NAN = 0x7FC0
"""What stands in padding: no row but its own may see it."""


def tiled(bits: Any) -> Any:
    """Rows of bf16 in tiles."""
    n, k = bits.shape
    rows = np.full((-(-n // amx.SIDE) * amx.SIDE, k), NAN, np.uint16)
    rows[:n] = bits
    return rows.reshape(-1, 16, k // 32, 32).swapaxes(1, 2).reshape(-1, TILE)


def untiled(tiles: Any, n: int, k: int) -> Any:
    """Rows of the bf16 in tiles."""
    return tiles.reshape(-1, k // 32, 16, 32).swapaxes(1, 2).reshape(-1, k)[:n]


def inputs_of(x: Any, how: Scheme) -> list[Any]:
    """The kernel's inputs: x for products of few rows, and for many."""
    return [*([x] if how.is_float else lt.rows_for(x, how, BEFORE)), tiled(bits_of(x))]


def products(n: int, k: int, *columns: int) -> int:
    """The number of AMX's multiply instructions."""
    squares = sum(-(-each // amx.SIDE) for each in columns) * -(-n // amx.SIDE)
    return squares * (k // amx.DEPTH) * SQUARE


def byte_products(n: int, k: int, *parts: Part) -> int:
    """The number of multiply instructions of `amx_bytes.py`."""
    if n < LEAST or not multiplies_bytes(CPU, parts, k):
        return 0
    groups = k // 32
    chunk = next(c for c in range(8, 0, -1) if groups % c == 0)
    pairs = groups if n > 16 else groups // chunk * -(-chunk // 2)
    return sum(-(-rows // 32) for rows, _ in parts) * pairs * SQUARE


def call(
    kernel: Any,
    inputs: list[Any],
    n: int,
    k: int,
    *columns: int,
    least: int = MANY,
    few: int = 0,
) -> Any:
    """y, and all that is to be seen of how it came about."""
    with amx_emulator.tiles() as counts:
        (y,) = lt.call(kernel, inputs, [((n, sum(columns)), "float32")])
    counts.check(products(n, k, *columns) if n >= least else few)
    return y


def check(n_out: int, k: int, name: str, bias: bool, rows: tuple[int, ...]) -> None:
    """Weights and x are both rounded to bf16, then the sums are all that differs."""
    how, rng = scheme(name), np.random.default_rng(n_out * k)
    packing = linear.packing(n_out, k, how, CPU)
    stored = packing.pack((rng.standard_normal((n_out, k)) + 0.1).astype(np.float32))
    b = [rng.standard_normal(n_out).astype(np.float32)] * bias
    weight = floats(bits_of(packing.unpack(stored)))
    kernel = lt.linear_kernel(n_out, k, how, CPU, bias)
    for n in rows:
        x = rng.standard_normal((n, k)).astype(np.float32)
        least = least_rows(how.is_float)
        y = call(kernel, [*inputs_of(x, how), *stored, *b], n, k, n_out, least=least)
        expected = lt.twin(floats(bits_of(x)) if n >= least else x, weight, b[0] if b else None)
        bound = 1e-6 if n >= least else 1e-5  # few rows: that of `test_linear`
        assert lt.relative_error(y, expected) < bound, (n, name)


def test_where_it_is_used() -> None:
    for name in ("bf16", "q4_k", "int8_g32", "int4a_row"):
        assert uses_amx(CPU, 512, scheme(name))
        assert not uses_amx(BEFORE, 512, scheme(name))
    for k, name in ((512, "f16"), (512, "f32"), (520, "bf16"), (72, "int4_row"), (48, "int6_g24")):
        assert not uses_amx(CPU, k, scheme(name)), name
    features = ("avx512f", "avx512bw", "avx512vl", "avx512vnni", "avx512vbmi", "avx512bf16")
    assert isa.Isa.from_features("x86_64", (*features, "amx-tile", "amx-bf16", "amx-int8")) == CPU
    assert isa.Isa.from_features("x86_64", features) == isa.AVX512_BF16


@pytest.mark.parametrize(
    ("name", "product"),
    [("bf16", "tdpbf16ps"), ("q4_k", "tdpbf16ps"), ("q4_k", "tdpbssd"), ("int8_g32", "tdpbsud")],
)
def test_what_it_compiles_to(name: str, product: str) -> None:
    """On any machine: in a task's own code tiles get their shape first and are given up last."""
    text = lt.executable(linear.linear(CPU, 64, 1024, name, False), CPU).inspect_source("asm")
    assert "callq\tmlcc_" not in text
    tasks = [part for part in text.split("\n\t.cfi_endproc") if product in part]
    assert len(tasks) == 1
    words = [line.split()[0] for line in tasks[0].splitlines() if line.strip()]
    tiles = [word for word in words if word.startswith(("tile", "tdp", "ldtile"))]
    assert (tiles[0], tiles[-1]) == ("ldtilecfg", "tilerelease")
    assert tiles.count("ldtilecfg") == tiles.count("tilerelease") == 1
    assert tiles.count(product) % SQUARE == 0


@runs_here
@pytest.mark.parametrize(
    ("n_out", "k", "bias", "rows"),
    [
        (64, 64, False, (32, 33)),
        (70, 1088, True, (0, 1, 7, 8, 31, 32, 77)),  # chunks of two steps
        (33, 576, False, (64, 95)),
        (1056, 32, True, (37,)),  # panels of one tile: 33 of them
        (1024, 64, False, (45,)),  # of two
        (32, 32, False, (513, 1025)),  # several blocks of rows
    ],
)
def test_bf16(n_out: int, k: int, bias: bool, rows: tuple[int, ...]) -> None:
    check(n_out, k, "bf16", bias, rows)


@runs_here
@pytest.mark.parametrize("name", [*AFFINE, *TWO_LEVEL, *TABLES])
def test_every_scheme(name: str) -> None:
    """Rows of 384: a block of 256 and half of one; three groups of 128."""
    check(40, 384, name, False, (32, 45))


@runs_here
@pytest.mark.parametrize("name", ["bf16", *AFFINE, *TWO_LEVEL, *TABLES])
def test_few_rows_are_what_they_were(name: str) -> None:
    """Also where AMX multiplies their bytes: 12 groups are chunks of 6, and 384 are 3 of 128."""
    how, rng, columns, k = scheme(name), np.random.default_rng(1), 70, 384
    packing = linear.packing(columns, k, how, CPU)
    stored = packing.pack(rng.standard_normal((columns, k)).astype(np.float32))
    least = least_rows(how.is_float)
    kernels = [lt.linear_kernel(columns, k, how, cpu, False) for cpu in (CPU, BEFORE)]
    for n in (0, 1, 7, least - 1, LEAST - 1, LEAST, 16, 17, 24):
        if n >= least:
            continue
        x = rng.standard_normal((n, k)).astype(np.float32)
        *own, tiles = inputs_of(x, how)
        few = 0 if how.is_float else byte_products(n, k, (columns, how))
        y = call(kernels[0], [*own, tiles, *stored], n, k, columns, least=least, few=few)
        (before,) = lt.call(kernels[1], [*own, *stored], [((n, columns), "float32")])
        np.testing.assert_array_equal(y, before, str(n))


@runs_here
def test_few_rows_of_several_weights_and_odd_groups() -> None:
    """With bias; five groups are one chunk, of which the last is multiplied twice."""
    k, parts = 160, ((40, scheme("t5_g32")), (7, scheme("int8_g32")), (33, scheme("int4a_g32")))
    rng, columns = np.random.default_rng(5), 80
    stored = [
        array
        for rows, how in parts
        for array in linear.packing(rows, k, how, CPU).pack(
            rng.standard_normal((rows, k)).astype(np.float32)
        )
    ]
    bias = rng.standard_normal(columns).astype(np.float32)
    kernel = lt.build(linear_many(CPU, parts, k, True), CPU)
    before = lt.build(linear_merged(BEFORE, parts, k, True), BEFORE)
    for n in (LEAST, 29):
        *own, tiles = inputs_of(rng.standard_normal((n, k)).astype(np.float32), parts[0][1])
        few = byte_products(n, k, *parts)
        assert few > 0
        y = call(kernel, [*own, tiles, *stored, bias], n, k, columns, few=few)
        (expected,) = lt.call(before, [*own, *stored, bias], [((n, columns), "float32")])
        np.testing.assert_array_equal(y, expected)


@runs_here
@pytest.mark.parametrize("name", ["bf16", "int8_g32", "int4a_g32"])
def test_each_product_meets_its_own_column_and_row(name: str) -> None:
    """Weights with one nonzero per column, whole numbers: exact in any order of sums."""
    n_out, k, how = 96, 256, scheme(name)
    weight = np.zeros((n_out, k), np.float32)
    weight[np.arange(n_out), (7 * np.arange(n_out)) % k] = 1 + np.arange(n_out) % 9
    packing = linear.packing(n_out, k, how, CPU)
    stored = packing.pack(weight)
    x = (np.arange(47 * k, dtype=np.float32).reshape(47, k) * 5) % 255
    kernel = lt.linear_kernel(n_out, k, how, CPU, False)
    y = call(kernel, [*inputs_of(x, how), *stored], 47, k, n_out)
    rounded = floats(bits_of(packing.unpack(stored)))
    np.testing.assert_array_equal(y, x @ rounded.T)
    assert name != "bf16" or (rounded == weight).all()


@runs_here
@pytest.mark.parametrize("name", [*AFFINE, *TWO_LEVEL, *TABLES])
def test_extremes(name: str) -> None:
    """The largest of everything: each group meets its own scale, and the middle is zero."""
    q = extreme(scheme(name), 40, 384)
    stored = linear.packing(40, 384, name, CPU).pack_quantized(q)
    x = np.full((33, 384), -128.0, np.float32)
    x[1], x[2, ::2] = 128.0, 0
    kernel = lt.linear_kernel(40, 384, scheme(name), CPU, False)
    y = call(kernel, [*inputs_of(x, scheme(name)), *stored], 33, 384, 40)
    weight = floats(bits_of(dequantize(q))).astype(np.float64)
    magnitude = np.abs(x) @ np.abs(weight).T
    assert (np.abs(y - lt.twin(x, weight, None)) <= 2e-6 * magnitude + 1e-9).all()


@runs_here
def test_weights_of_one_input_make_one_output() -> None:
    """Three schemes, sizes that end within tiles, with bias: the same bits as each alone."""
    k, n = 320, 41
    parts = ((40, scheme("q4_k")), (7, scheme("q6_k")), (33, scheme("int8_g64")))
    rng = np.random.default_rng(4)
    bias, x = (rng.standard_normal(s).astype(np.float32) for s in (80, (n, k)))
    stored = [
        linear.packing(rows, k, how, CPU).pack(rng.standard_normal((rows, k)).astype(np.float32))
        for rows, how in parts
    ]
    kernel = lt.build(linear_many(CPU, parts, k, True), CPU)
    inputs = inputs_of(x, parts[0][1])
    flat = [array for arrays in stored for array in arrays]
    y = call(kernel, [*inputs, *flat, bias], n, k, *(rows for rows, _ in parts))
    first = 0
    for (rows, how), arrays in zip(parts, stored, strict=True):
        own = lt.linear_kernel(rows, k, how, CPU, True)
        alone = call(own, [*inputs, *arrays, bias[first : first + rows]], n, k, rows)
        np.testing.assert_array_equal(y[:, first : first + rows], alone)
        first += rows


@runs_here
def test_what_is_not_finite_stays_so() -> None:
    packing = linear.packing(32, 32, "bf16", CPU)
    stored = packing.pack(np.ones((32, 32), np.float32))
    x = np.full((32, 32), 0x3F80, np.uint16)
    x[0, 3], x[1, 5], x[2, :2] = 0x7FC0, 0x7F80, (0x7F80, 0xFF80)
    kernel = lt.linear_kernel(32, 32, scheme("bf16"), CPU, False)
    y = call(kernel, [floats(x), tiled(x), *stored], 32, 32, 32)
    assert np.isnan(y[0]).all() and np.isposinf(y[1]).all() and np.isnan(y[2]).all()
    assert (y[3:] == 32).all()


@cache
def rows_kernels(k: int) -> tuple[Any, ...]:
    codes = (CPU, k, 32, 16)
    made = (rows_or_tiles(*codes), linear.quantize_rows(*codes), round_to_tiles(CPU, k))
    return tuple(lt.build(kernel, CPU) for kernel in made)


@runs_here
@pytest.mark.parametrize("n", [0, 1, 7, 8, MANY - 1, MANY, 300])
def test_rows_are_codes_or_tiles(n: int) -> None:
    """Few rows as without AMX, many in tiles; the other outputs are not written."""
    k = 96
    x = np.random.default_rng(n).standard_normal((n, k)).astype(np.float32)
    codes = [((n, k), "int8"), ((n, k // 32), "float32"), ((n, k // 16), "int32")]
    tiles = ((tiles_of(n, k), TILE), "uint16")
    either, quantize, rounded = rows_kernels(k)
    found = lt.call(either, [x], [*codes, tiles])
    untouched = [np.full(shape, 77, kind) for shape, kind in (*codes, tiles)]
    expected = [*lt.call(quantize, [x], codes), untouched[3]]
    if n >= MANY:
        expected = [*untouched[:3], padded_with(77, bits_of(x))]
    for got, right in zip(found, expected, strict=True):
        np.testing.assert_array_equal(got, right)
    (alone,) = lt.call(rounded, [x], [tiles])
    right = padded_with(77, bits_of(x)) if n >= least_rows(True) else untouched[3]
    np.testing.assert_array_equal(alone, right)


WIDTH = 96


@cache
def both_fused(kernel: Any) -> tuple[Any, Any]:
    """A kernel and the rounding of its rows: one after the other, and without the former's."""
    reader = rows_or_tiles(CPU, WIDTH, 32, 16)
    assert can_write_tiles(kernel, reader)
    apart, tiles = (fuse(kernel, reader) for fuse in (fuse_kernels, fuse_to_tiles))
    return lt.build(apart, CPU), lt.build(tiles, CPU)


def check_outputs(kernel: Any, given: list[Any], made: list[Any]) -> None:
    """The same bits; of many rows the kernel's last output is not written as float32."""
    n, results = made[-1][0][0], []
    codes = [((n, WIDTH), "int8"), ((n, WIDTH // 32), "float32"), ((n, WIDTH // 16), "int32")]
    outputs = [*made, *codes, ((tiles_of(n, WIDTH), TILE), "uint16")]
    for fused in both_fused(kernel):
        arrays = [np.full(shape, 77, dtype) for shape, dtype in outputs]
        tensors = [a if isinstance(a, int) else tvm.runtime.tensor(a) for a in [*given, *arrays]]
        with amx_emulator.tiles():
            fused(*tensors)
        results.append([tensor.numpy() for tensor in tensors[len(given) :]])
    apart, found = results
    if n >= MANY:
        apart[len(made) - 1] = np.full_like(apart[len(made) - 1], 77)
    for one, other in zip(found, apart, strict=True):
        np.testing.assert_array_equal(one, other)


@runs_here
def test_kernels_write_tiles_in_the_place_of_their_output() -> None:
    sizes, case = (WIDTH,), Case(dim=32, heads=3, kv_heads=1, dtype="float16")
    residual = norm.add_rms_norm(CPU, sizes, sizes, sizes, 1e-5, 0.0)
    attention = paged_attention(CPU, *case.arguments)
    for n in (1, MANY - 1, MANY, 300):
        rng, wide = np.random.default_rng(n), ((n, WIDTH), "float32")
        rows = [rng.standard_normal((n, WIDTH)).astype(np.float32) for _ in range(2)]
        check_outputs(residual, [*rows, np.full(WIDTH, 0.7, np.float32)], [wide, wide])
        step = inputs(case, ((n, n),), padding=2)
        check_outputs(attention, [*step.columns, step.sequences], [(step.q.shape, "float32")])


def padded_with(garbage: int, bits: Any) -> Any:
    """Tiles whose padding was not written."""
    found = tiled(bits)
    return np.where(found == NAN, np.uint16(garbage), found)


@runs_here
@pytest.mark.parametrize(
    ("names", "k", "inner", "bias", "kind"),
    [
        (("q4_k", "q4_k"), 256, 96, False, "silu"),
        (("int4a_g32", "int8_g32"), 1088, 64, True, "gelu_tanh"),
        (("bf16", "bf16"), 576, 1056, False, "silu"),
    ],
)
def test_gate_and_up_become_tiles(
    names: tuple[str, str], k: int, inner: int, bias: bool, kind: str
) -> None:
    schemes = [scheme(name) for name in names]
    parts: Any = ((2 * inner, schemes[0]),)
    if names[0] != names[1]:
        parts = tuple((inner, how) for how in schemes)
    fused = gated_many(CPU, parts, k, bias, kind)
    check_fused(fused, gated_fused(CPU, (2 * inner,), kind), parts, k, inner, bias, kind)


@runs_here
@pytest.mark.parametrize(
    ("name", "k", "inner", "bias", "kind"),
    [
        ("int8_g32", 256, 96, True, "gelu_tanh"),
        ("bf16", 1088, 64, False, "relu2"),
        ("bf16", 576, 1056, True, "gelu"),
    ],
)
def test_activations_become_tiles(name: str, k: int, inner: int, bias: bool, kind: str) -> None:
    how = scheme(name)
    fused = activated_many(CPU, inner, how, k, bias, kind)
    check_fused(fused, activated(CPU, (inner,), kind), ((inner, how),), k, inner, bias, kind)


def check_fused(
    fused: Any, activation: Any, parts: Any, k: int, inner: int, bias: bool, kind: str
) -> None:
    """The same bits as the product, the activation and the rounding one after the other, where no
    sigmoid is rounded; few rows are the product alone."""
    rng, how, columns = np.random.default_rng(inner), parts[0][1], sum(n for n, _ in parts)
    stored = [
        array
        for rows, each in parts
        for array in linear.packing(rows, k, each, CPU).pack(
            rng.standard_normal((rows, k)).astype(np.float32)
        )
    ]
    b = [rng.standard_normal(columns).astype(np.float32)] * bias
    fused, after = (lt.build(kernel, CPU) for kernel in (fused, activation))
    product = lt.build(linear_many(CPU, parts, k, bias), CPU)
    least = least_rows(how.is_float)
    for n in (1, least, 77):
        x = rng.standard_normal((n, k)).astype(np.float32)
        inputs = [*inputs_of(x, how), *stored, *b]
        y = call(product, inputs, n, k, *[inner] * (columns // inner), least=least)
        tiles = ((tiles_of(n, inner), TILE), "uint16")
        with amx_emulator.tiles():
            few, many = lt.call(fused, inputs, [((n, columns), "float32"), tiles])
        if n < least:
            np.testing.assert_array_equal(few, y)
            assert (many == 77).all()
            continue
        (result,) = lt.call(after, [y], [((n, inner), "float32")])
        assert (few == 77).all()
        if kind in ("silu", "gelu_tanh", "sigmoid"):
            error = np.abs(floats(untiled(many, n, inner)) - result)
            assert (error <= np.abs(result) * (2**-8 + 1.6e-4) + 1e-30).all()
            continue
        normal = np.abs(result) >= np.finfo(np.float32).tiny  # the instruction flushes others
        expected = tiled(bits_of(np.where(normal, result, np.copysign(np.float32(0), result))))
        np.testing.assert_array_equal(np.where(expected == NAN, expected, many), expected)


@runs_here
def test_the_emulator_refuses_what_a_cpu_would() -> None:
    """Tiles without a shape: the faults counted here would end a process on a CPU with AMX."""
    with IRBuilder() as builder, B.prim_func(s_tir=True, private=True):
        B.func_attr({"tirx.noalias": True, "tirx.is_scheduled": True})
        sums = B.arg("sums", B.buffer((amx.SIDE * amx.SIDE,), "float32"))
        with amx.imported():
            amx.zero()
            amx.store(T.address_of(sums[0]), 4 * amx.SIDE)
    kernel = lt.build(builder.get(), CPU)
    if not amx_emulator.emulated():
        pytest.skip("on a CPU with AMX these faults end the process")
    with amx_emulator.tiles() as counts:
        (y,) = lt.call(kernel, [], [((amx.SIDE**2,), "float32")])
    assert (counts.faults, counts.begun) == (8, 0)
    assert (y == 77).all()
