"""The GPU's small kernels against their twins. Bounds are absolute, on values of order one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mlcc.device.reference import ops as twin
from mlcc.device.reference.attention import append_kv
from mlcc.device.reference.caches import copy_pages
from mlcc.device.reference.pooling import mrope_table, replace_from
from mlcc.device.reference.step_view import StepView
from mlcc.engine.batch.tables import StepLayout
from mlcc_compiler.ir.caches import CacheTensor
from mlcc_compiler.ir.layout import KvLayout
from mlcc_compiler.kernels.gpu.device import Gpu
from mlcc_compiler.kernels.gpu.elementwise import activation, norm, pooling, rope
from mlcc_compiler.kernels.gpu.kv_cache import append
from tests.compiler.kernels.cases.gpu_kernels import F16, GPUS, SMALL, VULKAN, call, normal, run
from tests.compiler.kernels.cases.step import LAYOUTS, copy_step, placed_step, token_step, words_of

pytestmark = pytest.mark.usefixtures("vulkan")

ROWS = (0, 1, 7)
STEP = LAYOUTS[0]


@pytest.mark.parametrize("kind", ["silu", "gelu", "gelu_tanh", "sigmoid", "identity"])
def test_gated(kind: str) -> None:
    for n in ROWS:
        gate, up = normal(n, n, 300, scale=4), normal(1, n, 300)
        out = run(activation.gated, ((300,), (300,), kind), [gate, up], [((n, 300), "float32")])[0]
        np.testing.assert_allclose(out, twin.gated(gate, up, kind), rtol=0, atol=4e-6)
        both = np.concatenate([gate, up], axis=1)
        out = run(activation.gated_fused, ((600,), kind), [both], [((n, 300), "float32")])[0]
        np.testing.assert_allclose(out, twin.gated_fused(both, kind), rtol=0, atol=4e-6)


def test_activations_of_large_arguments_are_finite() -> None:
    gate = np.array([[-1e4, -200, -90, -20, 0, 20, 90, 200, 1e4]], np.float32)
    for kind in ("silu", "gelu", "gelu_tanh"):
        out = run(
            activation.gated, ((9,), (9,), kind), [gate, gate * 0 + 1], [((1, 9), "float32")]
        )[0]
        np.testing.assert_allclose(out, twin.gated(gate, gate * 0 + 1, kind), rtol=1e-6, atol=1e-6)


def test_add_scale_softcap() -> None:
    for n in ROWS:
        x, y = normal(n, n, 100, scale=10), normal(1, n, 100)
        shape = [((n, 100), "float32")]
        np.testing.assert_array_equal(
            run(activation.add, ((100,), (100,)), [x, y], shape)[0], x + y
        )
        np.testing.assert_array_equal(
            run(activation.scale, ((100,), 0.5), [x], shape)[0], twin.scale(x, 0.5)
        )
        factors = normal(2, 100)
        np.testing.assert_array_equal(
            run(activation.scale_columns, ((100,), (100,)), [x, factors], shape)[0], x * factors
        )
        np.testing.assert_array_equal(
            run(activation.subtract_columns, ((100,), (100,)), [x, factors], shape)[0],
            x - factors,
        )
        low, high = np.float32([-2.5]), np.float32([3.25])
        (clipped,) = run(activation.clip, ((100,), (1,), (1,)), [x, low, high], shape)
        np.testing.assert_array_equal(clipped, twin.clip(x, low, high))
        assert not n or (clipped.min() == low and clipped.max() == high)
        np.testing.assert_allclose(
            run(activation.softcap, ((100,), 30.0), [x], shape)[0],
            twin.softcap(x, 30.0),
            rtol=2e-6,
            atol=1e-6,
        )


def test_ids_are_replaced() -> None:
    ids = np.array([0, 7, 99, 100, 101, 5000, 99], np.int32)
    (out,) = run(pooling.replace_from, ((), 100, 3), [ids], [((7,), "int32")])
    np.testing.assert_array_equal(out, [0, 7, 99, 3, 3, 3, 99])
    np.testing.assert_array_equal(out, replace_from(ids, 100, 3))


def test_rows_are_taken() -> None:
    x, rows = normal(0, 9, 33), np.array([8, 0, 0, 3], np.int32)
    out = run(activation.take_rows, ((33,), ()), [x, rows], [((4, 33), "float32")])[0]
    np.testing.assert_array_equal(out, twin.take_rows(x, rows))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_read_step(layout: StepLayout) -> None:
    """Exactly, for any offsets of the columns, and with garbage beyond the counts."""
    last = np.array([50, 60, 70], np.int32)
    for sequences in ([[5, -1, 7, 8], [-3], [0], [-2]], [[4]], [range(300), [9] * 7], []):
        batch = token_step(layout, sequences)
        for more in (0, 5):
            n, r = batch.num_tokens + more, batch.num_rows + 2 * more
            expected = twin.read_step(StepView(batch), last, n, r)
            outputs = [(column.shape, "int32") for column in expected]
            found = run(activation.read_step, (layout,), [words_of(batch), last], outputs)
            assert len(found) == len(expected)
            for column, wanted in zip(found, expected, strict=True):
                np.testing.assert_array_equal(column, wanted)


@pytest.mark.parametrize("gpu", [*GPUS, VULKAN], ids=str)
@pytest.mark.parametrize("hidden", [1, 64, 300, 1000])
def test_rms_norm(gpu: Gpu, hidden: int) -> None:
    for n in ROWS:
        x, residual, w = normal(n, n, hidden), normal(1, n, hidden), normal(2, hidden)
        shape = ((n, hidden), "float32")
        out = run(norm.rms_norm, ((hidden,), (hidden,), 1e-5, 1.0), [x, w], [shape], gpu)[0]
        np.testing.assert_allclose(out, twin.rms_norm(x, w, 1e-5, 1.0), rtol=0, atol=1e-5)
        found = run(
            norm.add_rms_norm, (*[(hidden,)] * 3, 1e-5, 0.0), [x, residual, w], [shape, shape], gpu
        )
        for a, b in zip(found, twin.add_rms_norm(x, residual, w, 1e-5), strict=True):
            np.testing.assert_allclose(a, b, rtol=0, atol=1e-5)


@pytest.mark.parametrize("heads, dim", [(1, 8), (9, 64), (3, 80), (2, 256)])
def test_rms_norm_per_head(heads: int, dim: int) -> None:
    for gpu in (F16, SMALL, VULKAN):
        for n in ROWS:
            x, w = normal(n, n, heads, dim), normal(2, dim)
            out = run(
                norm.rms_norm,
                ((heads, dim), (dim,), 1e-6, 0.0),
                [x, w],
                [(x.shape, "float32")],
                gpu,
            )
            np.testing.assert_allclose(out[0], twin.rms_norm(x, w, 1e-6), rtol=0, atol=1e-5)


@pytest.mark.parametrize("size", [7, 64, 577])
@pytest.mark.parametrize("bias", [False, True])
def test_layer_norm(size: int, bias: bool) -> None:
    for gpu in (F16, SMALL, VULKAN):
        for n in ROWS:
            x, w, b = normal(n, n, size) + 3, normal(2, size), [normal(3, size)] * bias
            arguments = ((size,), (size,), *[(size,)] * bias, 1e-5, 1.0)
            (y,) = run(norm.layer_norm, arguments, [x, w, *b], [(x.shape, "float32")], gpu)
            np.testing.assert_allclose(y, twin.layer_norm(x, w, *b, 1e-5, 1.0), rtol=0, atol=1e-5)


@pytest.mark.parametrize("kind", twin.ACTIVATIONS)
def test_activated(kind: str) -> None:
    x = normal(0, 3, 70) * 5
    (y,) = run(activation.activated, ((70,), kind), [x], [(x.shape, "float32")])
    np.testing.assert_allclose(y, twin.activated(x, kind), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("dim, rotary", [(64, 64), (80, 32), (8, 8), (72, 72)])
def test_rope(dim: int, rotary: int) -> None:
    positions = np.array([0, 1, 2, 17, 4095, 32767, 131071], np.int32)
    inv_freq = (10000.0 ** (-np.arange(0, rotary, 2) / rotary)).astype(np.float32)
    expected = twin.rope_table(positions, inv_freq, 1.2)
    table = run(
        rope.rope_table,
        ((), (rotary // 2,), 1.2),
        [positions, inv_freq],
        [(expected.shape, "float32")],
    )
    np.testing.assert_allclose(table[0], expected, rtol=0, atol=1e-6)
    x = normal(0, 7, 3, dim)
    for pairs in (False, True):
        arguments = ((3, dim), (rotary,), int(pairs))
        y = run(rope.rope, arguments, [x, expected], [(x.shape, "float32")])[0]
        np.testing.assert_allclose(y, twin.rope(x, expected, pairs), rtol=0, atol=1e-6)


@pytest.mark.parametrize("interleaved", [0, 1])
def test_rope_table_of_three_sections(interleaved: int) -> None:
    batch, positions = placed_step()
    inv_freq = (10000.0 ** (-np.arange(0, 64, 2) / 64)).astype(np.float32)
    sections = "[12, 10, 10]"
    arguments = (batch.layout, 32, 1.2, sections, interleaved)
    tensors = [positions, inv_freq, np.frombuffer(batch.words, np.int32)]
    (table,) = run(rope.mrope_table, arguments, tensors, [((5, 64), "float32")])
    view = StepView(batch)
    expected = mrope_table(view, positions, inv_freq, 1.2, sections, interleaved)
    np.testing.assert_allclose(table, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_pages(dtype: str) -> None:
    rng = np.random.default_rng(0)
    pages = rng.standard_normal((5, 2, 3, 4, 40)).astype(dtype)
    k, v = normal(1, 6, 3, 40), normal(2, 6, 3, 40)
    slots = np.array([0, 7, -1, 19, 18, 4], np.int32)
    *_, out = call(append.append_kv, (KvLayout(4, dtype, 3, 40, STEP, 0),), [k, v, slots, pages])
    np.testing.assert_array_equal(out, append_kv(k, v, slots, pages.copy()))


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("group", [0, 2])
@pytest.mark.parametrize("shape", [(2, 3, 4, 40), (3, 20)])
def test_copy_pages(dtype: str, group: int, shape: tuple[int, ...]) -> None:
    """Copies of the group's pages, no more than their count; pages of any shape."""
    pages = normal(3, 12, *shape).astype(dtype)
    copies = [(2, 4, 1), (0, 5, 2), (1, 0, 7), (2, 6, 3), (0, 10, 8)]
    for layout in LAYOUTS[::2]:
        step = words_of(copy_step(layout, copies))
        arguments = (CacheTensor("", shape, dtype), layout, group)
        for count in (0, 1, 5):
            _, out, _ = call(append.copy_pages, arguments, [step, pages, count])
            own = [copy[1:] for copy in copies[:count] if copy[0] == group]
            source, to = np.array(own, np.int32).reshape(-1, 2).T
            np.testing.assert_array_equal(out, copy_pages(source, to, pages.copy()))


def test_what_float16_cannot_hold_is_not_stored_as_infinity() -> None:
    k, v = np.full((1, 1, 8), 1e6, np.float32), np.full((1, 1, 8), -1e6, np.float32)
    pages, slots = np.zeros((1, 2, 1, 1, 8), np.float16), np.zeros(1, np.int32)
    layout = KvLayout(1, "float16", 1, 8, STEP, 0)
    *_, out = call(append.append_kv, (layout,), [k, v, slots, pages])
    assert (out[0, 0] == 65504).all() and (out[0, 1] == -65504).all()


@pytest.mark.parametrize("dtype, gpu", [("float16", F16), ("float32", SMALL)])
@pytest.mark.parametrize("norm_of_heads", [None, (1e-6, 1.0)])
@pytest.mark.parametrize("dim, rotary", [(40, 40), (64, 16)])
def test_rotate_and_append(dtype: str, gpu: Gpu, norm_of_heads: Any, dim: int, rotary: int) -> None:
    heads, kv_heads, page = 9, 3, 4  # TVM cannot narrow a division by 3 of what may be negative
    slots = np.array([3, 7, -1, 19, 18, 4], np.int32)
    qkv = normal(0, 6, (heads + 2 * kv_heads) * dim)
    inv_freq = (100.0 ** (-np.arange(0, rotary, 2) / rotary)).astype(np.float32)
    table = twin.rope_table(np.arange(6, dtype=np.int32), inv_freq, 1.0)
    pages = np.random.default_rng(1).standard_normal((5, 2, kv_heads, page, dim)).astype(dtype)
    weights = [normal(2, dim), normal(3, dim)] if norm_of_heads else []
    q, k, v = np.split(qkv.reshape(6, -1, dim), [heads, heads + kv_heads], axis=1)
    if norm_of_heads:
        q, k = (twin.rms_norm(x, w, *norm_of_heads) for x, w in zip((q, k), weights, strict=True))
    expected = append_kv(twin.rope(k, table), v, slots, pages.copy())
    arguments = (KvLayout(page, dtype, kv_heads, dim, STEP, 0), heads, rotary, norm_of_heads)
    tensors = [qkv, table, *weights, slots, pages, np.zeros((6, heads, dim), np.float32)]
    *_, found, out = call(append.rotate_and_append, arguments, tensors, gpu)
    np.testing.assert_allclose(out, twin.rope(q, table), rtol=0, atol=1e-5)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5 if dtype == "float32" else 4e-3)
