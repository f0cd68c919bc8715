"""Rows of schemes and recipes, and the numpy codec behind them."""

from __future__ import annotations

import os

import ml_dtypes
import numpy as np
import pytest

from mlcc.errors import CheckpointError, UnsupportedError
from mlcc_compiler.quantization import (
    RECIPES,
    SCHEMES,
    Scheme,
    codec,
    dequantize,
    quantize,
    recipe,
    scheme,
    with_head,
)
from mlcc_compiler.quantization.quantized import PARTS, Quantized
from mlcc_compiler.quantization.schemes import E4M3

INTEGER = [scheme("e4m3_g64"), scheme("e4m3_row"), scheme("nvfp4")]
INTEGER += [row for row in SCHEMES.values() if not row.is_float]


def _weight(n: int = 40, k: int = 256) -> np.ndarray:
    return (np.random.default_rng(3).standard_normal((n, k)) * 0.02).astype(np.float32)


def _clip(how: Scheme) -> float:
    """The bound of an element's error, relative to the largest weight of its group. 8 bits round to
    half a step; fewer may clip the tails, and two levels may round a small group's scale up."""
    if how.is_e4m3:
        return 16 / 448 * 1.05  # half of the last step
    if how.bits == 8:
        return (0.5 / 127 if how.symmetric else 1 / 255) * 1.05
    return {2: 1.2, 3: 0.7, 4: 0.35, 5: 0.2, 6: 0.1}[how.bits]


@pytest.mark.parametrize("how", INTEGER, ids=lambda s: s.name)
def test_round_trip(how: Scheme) -> None:
    weight = _weight()
    q = quantize(weight, how)
    q.check("w")
    groups = how.groups_of(256)
    assert q.codes.shape == (40, 256) and q.codes.max() <= how.levels
    assert q.scales.shape == (40, how.blocks_of(256)) and q.scales.dtype == how.scale_dtype
    assert (q.zeros is None and q.minima is None) == how.symmetric
    error = np.abs(dequantize(q) - weight).reshape(40, groups, -1)
    largest = np.abs(weight).reshape(40, groups, -1).max(axis=2, keepdims=True)
    assert (error <= largest * _clip(how) + 1e-6).all()


@pytest.mark.parametrize("how", INTEGER, ids=lambda s: s.name)
def test_deterministic_and_independent_of_chunks(how: Scheme) -> None:
    weight = _weight(700, 256)
    a, b, part = quantize(weight, how), quantize(weight, how), quantize(weight[600:], how)
    for name in PARTS:
        x, y, z = (getattr(q, name) for q in (a, b, part))
        if x is not None:
            np.testing.assert_array_equal(x, y)
            np.testing.assert_array_equal(x[600:], z)


def test_search_beats_plain_rounding() -> None:
    weight = _weight(200)
    q = quantize(weight, scheme("int4_g32"))
    groups = weight.reshape(200, 8, 32)
    plain = np.abs(groups).max(axis=2, keepdims=True) / 7
    rounded = np.clip(np.rint(groups / plain), -8, 7) * plain
    searched = np.square(dequantize(q) - weight).sum()
    assert searched < 0.85 * np.square(rounded.reshape(weight.shape) - weight).sum()


@pytest.mark.parametrize("how", INTEGER, ids=lambda s: s.name)
def test_zero_constant_tiny_and_huge_groups(how: Scheme) -> None:
    weight = np.zeros((6, 256), np.float32)
    weight[1], weight[2], weight[3], weight[4] = 0.5, -0.5, 1e-30, 1e-4
    weight[5, ::2] = 1e6
    back = dequantize(quantize(weight, how))
    assert np.isfinite(back).all() and not back[0].any()
    np.testing.assert_allclose(back[1], 0.5, rtol=0.01)
    np.testing.assert_allclose(back[2], -0.5, rtol=0.01)
    np.testing.assert_allclose(back[3], 0, atol=1e-6)
    np.testing.assert_allclose(back[4], 1e-4, rtol=0.1)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_damaged_weights_are_refused(bad: float) -> None:
    weight = _weight()
    weight[7, 9] = bad
    with pytest.raises(CheckpointError, match="NaN or infinite"):
        quantize(weight, scheme("int4_g32"))


def test_8_bit_floats() -> None:
    """Their values; what kernels do not compute with is refused."""
    bits = np.arange(256, dtype=np.uint8)
    np.testing.assert_array_equal(
        np.asarray(E4M3, np.float32), bits.view(ml_dtypes.float8_e4m3fn).astype(np.float32)
    )
    how, scales = scheme("e4m3_g128"), np.full((1, 2), 0.5, np.float32)
    Quantized(how, np.where((bits & 127) == 127, 0, bits)[None], scales).check("w")
    with pytest.raises(CheckpointError, match="'w' holds NaN"):
        Quantized(how, bits[None], scales).check("w")
    with pytest.raises(CheckpointError, match="'w' has a scale beyond 1"):
        Quantized(how, bits[None] & 63, 3 * scales).check("w")


def test_group_that_does_not_fit_names_the_fix() -> None:
    with pytest.raises(
        UnsupportedError, match=r"48 does not divide rows of 400.*use group 16, 8, 4"
    ):
        quantize(_weight(8, 400), Scheme("int4_g48", 4, 48))
    with pytest.raises(UnsupportedError, match="not a multiple of 4"):
        Scheme("int8_g6", 8, 6).group_of(12)
    with pytest.raises(UnsupportedError, match="not a multiple of 4"):
        scheme("int8_row").group_of(30)
    with pytest.raises(UnsupportedError, match="float format"):
        quantize(_weight(), scheme("bf16"))


def test_names() -> None:
    with pytest.raises(UnsupportedError, match=r"unknown scheme 'int3'; use one of: f32"):
        scheme("int3")
    with pytest.raises(UnsupportedError, match=r"unknown quantization 'q1'; use one of: f32"):
        recipe("q1")
    for row in RECIPES.values():
        for name in (row.linear, row.embedding, row.head, *(s for _, s in row.rules)):
            assert scheme(name).name == name
    assert recipe("q4_g32").linear == "int4_g32" and recipe("q4_g32").head == "int8_g32"
    mixed = recipe("q4")
    assert (mixed.linear, mixed.head) == ("t4_g32", "int8_g32")
    assert mixed.of_linear("model.layers.3.self_attn.v_proj.weight") == "t5_g32"
    assert mixed.of_linear("model.layers.3.mlp.experts.7.down_proj.weight") == "t4_g32"


def test_bits_per_weight() -> None:
    assert scheme("int4_g32").bits_per_weight(576) == 4.5
    assert scheme("int8a_g64").bits_per_weight(576) == 8.375
    assert scheme("bf16").bits_per_weight(576) == 16
    assert scheme("k4_g32").bits_per_weight(2048) == 4 + 16 / 32 + 32 / 1024
    assert scheme("t4_g32").bits_per_weight(2048) == 4 + 8 / 32 + 16 / 1024


@pytest.mark.parametrize("bits", [3, 4, 5])
def test_a_curve_is_its_rounded_table_and_leaves_less_error_than_a_line(bits: int) -> None:
    """In as many bits: of a fifth to a quarter less."""
    how, line = scheme(f"t{bits}_g32"), scheme(f"k{bits}_g64")
    assert how.curve is not None and len(how.table) == 2**bits
    a, c = how.curve
    t = (np.arange(2**bits) + 0.5) / 2**bits - 0.5
    value = a * (t + 2 * t**3) - c
    assert (np.rint(value) == how.table).all() and (np.diff(how.table) > 0).all()
    assert np.abs(value % 1 - 0.5).min() > 0.005  # so that any order of float32 gives the same
    assert how.bits_per_weight(2048) < line.bits_per_weight(2048)
    weight = np.random.default_rng(1).standard_normal((64, 2048), dtype=np.float32)
    error, other = (np.square(dequantize(quantize(weight, s)) - weight).mean() for s in (how, line))
    assert error < 0.81 * other


def test_head_and_embedding_have_their_own_setting() -> None:
    assert with_head(recipe("q4"), None) == recipe("q4")
    changed = with_head(recipe("q4"), "f16")
    assert (changed.linear, changed.embedding, changed.head) == ("t4_g32", "f16", "f16")
    small = with_head(recipe("q8"), "q4")
    assert (small.linear, small.embedding, small.head) == ("int8_g32", "t4_g32", "t4_g32")
    assert with_head(recipe("q8"), "q6_k").head == "q6_k"
    with pytest.raises(UnsupportedError, match="unknown scheme 'q1'"):
        with_head(recipe("q8"), "q1")


def test_small_groups_reach_rows_of_48() -> None:
    for name in ("q4_g16", "q4a_g16", "q8_g16", "q8a_g16"):
        how = recipe(name)
        assert [scheme(s).group_of(48) for s in (how.linear, how.embedding, how.head)] == [16] * 3


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="os.sched_getaffinity is Linux's")
def test_only_the_cores_of_this_process_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int | None] = []
    pool = codec.ThreadPoolExecutor
    monkeypatch.setattr(codec, "ThreadPoolExecutor", lambda n: asked.append(n) or pool(n))
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 5, 7})
    quantize(_weight(), scheme("int8_g32"))
    assert asked == [3]
