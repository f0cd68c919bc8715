"""Linear kernels against their float64 twins: every scheme, odd sizes, every instruction set."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from mlcc_compiler.kernels.cpu.isa import isa
from mlcc_compiler.kernels.cpu.linear import linear
from mlcc_compiler.kernels.cpu.linear.quantized import row_tiles
from mlcc_compiler.kernels.cpu.linear.tasks import tile_size
from mlcc_compiler.quantization import Scheme, dequantize, scheme
from mlcc_targets.cpu import STORED
from tests.compiler.kernels.cases import linear_twin as lt
from tests.compiler.kernels.cases.scheme import AFFINE, KERNELS, TABLES, TWO_LEVEL, extreme

ROWS = (0, 1, 2, 3, 4, 5, 6, 7, 9, 17, 64, 130)
HERE = [isa.AVX512_VBMI, isa.AVX512_VNNI, isa.AVX2_VNNI, isa.AVX2, isa.SSE2, isa.GENERIC]


def host_runs(cpu: isa.Isa) -> bool:
    from mlcc.util.machine import cpu_features

    vnni = {"avx512f", "avx512vl", "avx512bw", "avx512dq", "avx512vnni"}
    names = {
        isa.AVX512_VBMI: vnni | {"avx512vbmi"},
        isa.AVX512_VNNI: vnni,
        isa.AVX2_VNNI: {"avx2", "fma", "f16c", "avxvnni"},
        isa.AVX2: {"avx2", "fma", "f16c"},
    }
    return cpu_features() >= names.get(lt.plain(cpu), set())


def best() -> isa.Isa:
    return next(cpu for cpu in HERE if host_runs(cpu))


def check(n_out: int, k: int, how: Scheme, cpu: isa.Isa, bias: bool, rows: tuple[int, ...]) -> None:
    """Kernel == twin for several row counts, with equally quantized activations."""
    rng = np.random.default_rng(n_out * k)
    packing = linear.packing(n_out, k, how, cpu)
    stored = packing.pack((rng.standard_normal((n_out, k)) + 0.1).astype(np.float32))
    weight = packing.unpack(stored)
    b = rng.standard_normal(n_out).astype(np.float32) if bias else None
    kernel = lt.linear_kernel(n_out, k, how, cpu, bias)
    for n in rows:
        x = rng.standard_normal((n, k)).astype(np.float32)
        inputs, seen = [x], x
        if linear.needs_quantized_rows(how):
            inputs = lt.rows_for(x, how, cpu)
            seen = lt.dequantize_rows(inputs[0], inputs[1])
        arguments = [*inputs, *stored, *([] if b is None else [b])]
        (y,) = lt.call(kernel, arguments, [((n, n_out), "float32")])
        assert lt.relative_error(y, lt.twin(seen, weight, b)) < 1e-5, (n, n_out, k, how.name)


def test_heights_of_register_tiles() -> None:
    """Few rows read a weight as seldom as registers allow."""
    found = [tile_size(row_tiles(isa.AVX512_VNNI), n) for n in range(1, 15)]
    assert found == [1, 2, 3, 4, 3, 6, 4, 4, 6, 6, 6, 6, 6, 6]
    assert [tile_size(row_tiles(isa.AVX2), n) for n in range(1, 10)] == [1, 2, 2, 4, 4, 4, 4, 4, 4]
    assert row_tiles(isa.NEON_I8MM) == (6, 4, 2, 1)  # in pairs
    assert row_tiles(replace(isa.AVX512_VNNI, activation_parts=2)) == (3, 2, 1)


@pytest.mark.parametrize("name", KERNELS)
def test_every_scheme(name: str) -> None:
    """Rows of 384: a block of 256 and half of one; three groups of 128."""
    check(40, 384, scheme(name), best(), False, ROWS)


@pytest.mark.parametrize(
    ("n_out", "k", "how"),
    [
        (1, 32, scheme("int4_g32")),
        (33, 32, scheme("int8_g32")),
        (7, 36, Scheme("int4_row", 4)),  # 9 steps: the last byte is half empty
        (16, 40, Scheme("int4_g4", 4, 4)),
        (96, 2048 + 32, scheme("int4a_row")),
        (16, 100, scheme("int5m_row")),  # three blocks of steps, and one of a single step
        (24, 168, scheme("int6_g24")),
        (9, 96, scheme("q6_k")),  # less than a block
        (97, 96, scheme("int4_g32")),
        (97, 112, scheme("int4a_g16")),
        (336, 96, scheme("int8_g32")),
        (112, 192, scheme("int4a_g64")),
        (5, 7, scheme("f32")),
        (31, 1, scheme("bf16")),
        (17, 130, scheme("f16")),
    ],
    ids=lambda v: v.name if isinstance(v, Scheme) else str(v),
)
def test_odd_sizes_with_bias(n_out: int, k: int, how: Scheme) -> None:
    check(n_out, k, how, best(), True, (0, 1, 2, 7, 13))


def test_row_blocks_split_evenly() -> None:
    """More rows than a block has, not a multiple of the register tile: of many, which a tile is
    unpacked for, one to four blocks of them, and of few."""
    check(32, 4096, scheme("int8_g32"), best(), False, (293,))
    check(80, 64, scheme("t4_g32"), best(), False, (96, 97, 133, 264, 265, 528, 529))
    check(32, 36 * 1024, scheme("int4_g32"), best(), False, (23,))


@pytest.mark.parametrize("cpu", HERE[1:], ids=lambda c: c.name)
@pytest.mark.parametrize("name", ["f16", "bf16", "int8a_g32", "q4_k", "q6_k", "iq4_xs"])
def test_other_instruction_sets(cpu: isa.Isa, name: str) -> None:
    if not host_runs(cpu):
        pytest.skip(f"this machine has no {cpu.name}")
    check(35, 288, scheme(name), cpu, True, (1, 2, 5, 16))


@pytest.mark.skipif(not host_runs(isa.AVX512_VBMI), reason="no AVX512-VBMI here")
@pytest.mark.parametrize(
    "name", ["int2_g32", "int3_g8", "int3m_g16", "t5_g32", *TWO_LEVEL, *TABLES]
)
def test_lookups_of_six_bits_give_the_same_bits(name: str) -> None:
    """The codes of each level, with stored and with unpacked tiles; random ones, as each code's
    neighbours in a byte must not matter."""
    how, n_out, k = scheme(name), 40, 288
    rng = np.random.default_rng(3)
    packing = linear.packing(n_out, k, how, isa.AVX512_VNNI)
    stored = packing.pack(rng.standard_normal((n_out, k)).astype(np.float32))
    x = rng.standard_normal((25, k)).astype(np.float32)
    for n in (1, 3, 25):
        inputs = lt.rows_for(x[:n], how, isa.AVX512_VNNI)
        found = [
            lt.call(
                lt.linear_kernel(n_out, k, how, cpu, False),
                [*inputs, *stored],
                [((n, n_out), "float32")],
            )
            for cpu in (isa.AVX512_VBMI, isa.AVX512_VNNI)
        ]
        np.testing.assert_array_equal(*found)


def test_lookups_by_comparison_are_emitted_once() -> None:
    """Not for each register tile: they were most of the code of the level for all x86-64 CPUs."""
    built = lt.executable(linear.linear(isa.SSE2, 64, 64, "t5_g32", False), isa.SSE2)
    steps, indices = 8, 31
    assert built.inspect_source("asm").count("pcmpeqb") == steps * indices


def test_where_bytes_are_looked_up_by_six_bits() -> None:
    vnni = ("avx512f", "avx512bw", "avx512vl", "avx512vnni")
    assert isa.Isa.from_features("x86_64", (*vnni, "avx512vbmi")) == isa.AVX512_VBMI
    assert isa.Isa.from_features("x86_64", vnni) == isa.AVX512_VNNI
    assert isa.Isa.from_features("x86_64", (*vnni, "avx512bf16")) == isa.AVX512_VNNI


@pytest.mark.parametrize("cpu", [isa.AVX2, isa.SSE2], ids=lambda c: c.name)
@pytest.mark.parametrize("name", ["f16", "int8a_g32", "q4_k"])
def test_narrow_registers_read_wide_tiles_in_strips(cpu: isa.Isa, name: str) -> None:
    """The bytes of AVX-512's layout: two strips or four of several rows, one or two of one; codes
    of 8 bits lie otherwise than these instructions take them; strips that end within a tile."""
    if not host_runs(cpu):
        pytest.skip(f"this machine has no {cpu.name}")
    for n_out in (32, 53):
        check(n_out, 96, scheme(name), wide(cpu), True, (1, 2, 5))


def wide(cpu: isa.Isa) -> isa.Isa:
    """The instruction set with the weight layout that all x86-64 CPUs share."""
    columns, signed = STORED["x86_64"]
    return replace(cpu, tile_columns=columns, stored_signed=signed)


@pytest.mark.parametrize("name", [*AFFINE, "int6a_g32", *TWO_LEVEL, *TABLES])
def test_extremes(name: str) -> None:
    """The largest codes and scales times the largest activations: 16-bit sums must not clip, and
    each group must use its own scale; with stored and with unpacked tiles."""
    how = scheme(name)
    q = extreme(how, 40, 384)
    saturating = name in (
        "int6a_g32",
        "int7a_g16",
        "int8a_g64",
        "q6_k",
        "iq4_xs",
    )  # 16-bit sums of AVX2
    for cpu in (isa.AVX2, best()) if saturating else (best(),):
        if not host_runs(cpu):
            continue
        stored = linear.packing(40, 384, how, cpu).pack_quantized(q)
        x = np.full((3, 384), -127.0, np.float32)
        x[1], x[2, ::2] = 127.0, 0
        for many in (x, np.tile(x, (9, 1))):
            inputs = lt.rows_for(many, how, cpu)
            kernel = lt.linear_kernel(40, 384, how, cpu, False)
            (y,) = lt.call(kernel, [*inputs, *stored], [((len(many), 40), "float32")])
            seen = lt.dequantize_rows(inputs[0], inputs[1])
            expected = lt.twin(seen, dequantize(q), None)
            magnitude = np.abs(seen) @ np.abs(dequantize(q).astype(np.float64)).T
            assert (np.abs(y - expected) <= 2e-6 * magnitude + 1e-9).all(), cpu.name


def test_weights_of_one_input_make_one_output() -> None:
    """Three schemes, sizes that end within tiles, with bias: the same bits as each alone."""
    cpu, k = best(), 320
    parts = ((40, scheme("q4_k")), (7, scheme("q6_k")), (33, scheme("int8_g64")))
    rng = np.random.default_rng(4)
    bias = rng.standard_normal(80).astype(np.float32)
    stored = [
        linear.packing(n, k, how, cpu).pack(rng.standard_normal((n, k)).astype(np.float32))
        for n, how in parts
    ]
    kernel = lt.merged_kernel(parts, k, cpu, True)
    for n in (0, 1, 5, 14):
        x = rng.standard_normal((n, k)).astype(np.float32)
        inputs = lt.rows_for(x, parts[0][1], cpu)
        flat = [array for arrays in stored for array in arrays]
        (y,) = lt.call(kernel, [*inputs, *flat, bias], [((n, 80), "float32")])
        first = 0
        for (rows, how), arrays in zip(parts, stored, strict=True):
            own = lt.linear_kernel(rows, k, how, cpu, True)
            some = bias[first : first + rows]
            (alone,) = lt.call(own, [*inputs, *arrays, some], [((n, rows), "float32")])
            np.testing.assert_array_equal(y[:, first : first + rows], alone)
            first += rows


def test_schemes_meet_where_they_read_the_same_rows() -> None:
    assert linear.share_input(["q4_k", "q6_k", "int4_g128"], 256)
    assert linear.share_input(["bf16", "bf16"], 7)
    assert not linear.share_input(["bf16", "int8_g32"], 256)
    assert not linear.share_input(["int4_g24", "int4_g28"], 168)


@pytest.mark.parametrize(
    ("name", "k"),
    [
        ("int4_g32", 192),
        ("bf16", 192),
        ("k4_g32", 32 * 35),  # a span of 32 groups, and one of three
        ("k5_g64", 64 * 19),
        ("q6_k", 32 * 13),
        ("q2_k", 32 * 9),
        ("int4a_g128", 128 * 9),
        ("mxfp4", 96),
    ],
)
def test_a_row_does_not_depend_on_the_batch(name: str, k: int) -> None:
    """Equal bits alone, in a small batch, and in prefill with an unpacked tile: batching never
    changes a token."""
    cpu, n_out = best(), 40
    packing = linear.packing(n_out, k, name, cpu)
    rng = np.random.default_rng(2)
    stored = packing.pack(rng.standard_normal((n_out, k)).astype(np.float32))
    kernel = lt.linear_kernel(n_out, k, scheme(name), cpu, False)
    x = rng.standard_normal((130, k)).astype(np.float32)

    def run(rows: np.ndarray) -> np.ndarray:
        inputs = [rows] if name == "bf16" else lt.rows_for(rows, scheme(name), cpu)
        (y,) = lt.call(kernel, [*inputs, *stored], [((len(rows), n_out), "float32")])
        return np.asarray(y)

    whole = run(x)
    for n in (1, 2, 3, 5, 8, 17, 24):
        np.testing.assert_array_equal(run(x[:n]), whole[:n])


def test_unquantized_activations_within_the_bound() -> None:
    """Rounding x costs at most half a step per element: |y - exact| <= sum |w| * x_scale / 2."""
    rng = np.random.default_rng(5)
    cpu, n_out, k = best(), 64, 192
    packing = linear.packing(n_out, k, "int4_g32", cpu)
    stored = packing.pack(rng.standard_normal((n_out, k)).astype(np.float32))
    weight = packing.unpack(stored)
    x = (rng.standard_normal((17, k)) * rng.lognormal(size=(17, 1))).astype(np.float32)
    inputs = lt.rows_for(x, scheme("int4_g32"), cpu)
    kernel = lt.linear_kernel(n_out, k, scheme("int4_g32"), cpu, False)
    (y,) = lt.call(kernel, [*inputs, *stored], [((17, n_out), "float32")])
    step = np.repeat(inputs[1], 32, axis=1).astype(np.float64)
    bound = (step / 2) @ np.abs(weight).T.astype(np.float64)
    error = np.abs(y - lt.twin(x, weight, None))
    assert (error <= bound * 1.001 + 1e-6).all()
    assert error.mean() < 0.2 * bound.mean()
