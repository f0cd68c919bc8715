"""Kernels that keep activations in float16 between products, on the emulated device: norms and
gated products that write pairs, and several weights by one launch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from mlcc.device.reference import ops as twin
from mlcc_compiler.kernels.gpu.attention import attention, one_launch
from mlcc_compiler.kernels.gpu.attention.plan import range_items
from mlcc_compiler.kernels.gpu.device import Gpu
from mlcc_compiler.kernels.gpu.linear.fragments import fp8_outputs, joined, rounded, rounded_rows
from mlcc_compiler.kernels.gpu.linear.fragments.codes import columns_of
from mlcc_compiler.kernels.gpu.linear.fragments.joined import Gate, gated_linear, joined_linear
from mlcc_compiler.kernels.gpu.linear.packing import GpuPacking
from mlcc_compiler.kernels.gpu.linear.split_weights import packing
from tests.compiler.kernels.cases.attention import Case, Inputs, alone, inputs
from tests.compiler.kernels.cases.gpu_kernels import call, normal, run, scratch
from tests.targets.cuda.test_emulated_kernels import CUDA, on_cuda  # noqa: F401

pytestmark = pytest.mark.usefixtures("emulated", "on_cuda")
PLAIN, SHIFTED = (0, 1, 2, 3, 4, 5, 6, 7), (0, 2, 1, 3, 4, 6, 5, 7)
HALF = 2.0**-11
"""The rounding of float16, relative."""
F16_MAX = 65504


def in_pairs(x: Any, order: Sequence[int]) -> Any:
    """x as `store_unit` stores it."""
    halves = np.clip(x, -F16_MAX, F16_MAX).astype(np.float16)
    units = halves.reshape(len(x), x.shape[1] // 8, 8)[:, :, list(order)]
    return np.ascontiguousarray(units).reshape(x.shape).view(np.uint32)


def from_pairs(pairs: Any, order: Sequence[int]) -> Any:
    """float32 rows of what `store_unit` stored."""
    rows, words = pairs.shape
    units = pairs.view(np.float16).reshape(rows, words // 4, 8)
    return units[:, :, np.argsort(order)].reshape(rows, 2 * words).astype(np.float32)


@pytest.mark.parametrize(("size", "order"), [(96, PLAIN), (4160, SHIFTED)])
def test_norms(size: int, order: tuple[int, ...]) -> None:
    """Fewer units than threads, and more, the last ones of some threads only."""
    x, residual, w = normal(1, 3, size), normal(2, 3, size), normal(3, size)
    x[1] *= 1e-3
    text, made = rounded.order_text(order), ((3, size // 2), "uint32")
    numbers = ((size,), (size,), 1e-6, 1.0, text)
    (y,) = run(rounded_rows.rounded_rms_norm, numbers, [x, w], [made], CUDA)
    expected = twin.rms_norm(x, w, 1e-6, 1.0)
    np.testing.assert_allclose(from_pairs(y, order), expected, rtol=2 * HALF, atol=1e-7)
    numbers = ((size,), *numbers)
    given, out = [x, residual, w], [((3, size), "float32"), made]
    total, y = run(rounded_rows.rounded_add_rms_norm, numbers, given, out, CUDA)
    np.testing.assert_array_equal(total, x + residual)
    expected = twin.rms_norm(x + residual, w, 1e-6, 1.0)
    np.testing.assert_allclose(from_pairs(y, order), expected, rtol=2 * HALF, atol=1e-7)


def test_a_gated_product() -> None:
    both = normal(1, 5, 2 * 72, scale=3)
    both[0, 3] = both[0, 72 + 3] = 4e3  # beyond float16's range
    numbers = (2 * 72,), "silu", rounded.order_text(SHIFTED)
    (y,) = run(rounded_rows.rounded_gated, numbers, [both], [((5, 36), "uint32")], CUDA)
    np.testing.assert_allclose(from_pairs(y, SHIFTED), gated(both), rtol=2 * HALF, atol=1e-6)


def gated(both: Any) -> Any:
    """silu of the first half of each row times the second, within float16's range."""
    gate, up = np.split(both.astype(np.float64), 2, axis=1)
    return np.clip(gate / (1 + np.exp(-gate)) * up, -F16_MAX, F16_MAX)


def weights_of(sizes: Sequence[tuple[str, int]], k: int) -> tuple[Any, list[Any], Any]:
    """(packings, their tensors, the matrix of all)."""
    forms = tuple(packing(CUDA, (n, k), name) for name, n in sizes)
    stored = [form.pack(normal(i, form.n, k) + np.float32(0.1)) for i, form in enumerate(forms)]
    whole = np.concatenate([f.unpack(arrays) for f, arrays in zip(forms, stored, strict=True)])
    return forms, [array for arrays in stored for array in arrays], whole


def bound(x: Any, whole: Any) -> Any:
    """Of the error of products of pairs: weights are rounded to float16 for more than 8 rows; of
    fewer the excess of codes costs accuracy (docs/notes/cuda_kernels.md)."""
    unit = HALF if len(x) > 8 else 2.0**-15
    return np.float32(unit) * (np.abs(x) @ np.abs(whole).T) + np.float32(1e-6)


JOINED = [
    ((("t4_g32", 80), ("t5_g32", 48)), 256, (0, 1, 8, 19), True),
    ((("t4_g32", 80), ("t5_g32", 48), ("int8_g32", 16)), 64, (1, 9), True),
    ((("int4_g32", 48), ("k5_g32", 32)), 96, (3, 70), False),
    ((("bf16", 48),), 64, (5,), False),
    ((("t4_g32", 288), ("t5_g32", 32)), 2176, (12,), False),  # workgroups share out K
]


@pytest.fixture
def few_kernels(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiles of 16 and 128 rows alone, which are quicker to compile than all."""
    if not request.config.getoption("--long"):
        monkeypatch.setattr(joined, "ROWS", (16, 128))


@pytest.mark.usefixtures("few_kernels")
@pytest.mark.parametrize(
    ("sizes", "k", "rows", "bias"),
    [JOINED[0], *(pytest.param(*case, marks=pytest.mark.long) for case in JOINED[1:])],
    ids=str,
)
def test_several_weights(
    sizes: tuple[tuple[str, int], ...], k: int, rows: tuple[int, ...], bias: bool
) -> None:
    """x in pairs, by one launch."""
    forms, tensors, whole = weights_of(sizes, k)
    b = normal(9, len(whole)) if bias else None
    order = columns_of(forms[0])
    for n in rows:
        x = normal(n, n, k)
        given = [in_pairs(x, order), *scratch(), *tensors, *([] if b is None else [b])]
        y = product(forms, given, bias)
        x = from_pairs(given[0], order)
        assert (np.abs(y - twin.linear(x, whole, b)) <= bound(x, whole)).all(), n


def product(forms: tuple[GpuPacking, ...], given: list[Any], bias: bool) -> Any:
    """y of `joined_linear`, which leaves its counters 0."""
    y = np.full((len(given[0]), sum(form.n for form in forms)), 77, np.float32)
    after = call(joined_linear, (forms, bias, "float32", True), [*given, y], CUDA)
    assert not after[1].any()
    return after[-1]


MERGED = [
    (Case(heads=8, kv_heads=2, dim=64, dtype="float16"), ((1, 300), (1, 16), (1, 129))),
    (Case(heads=3, kv_heads=3, dim=16, window=100), ((1, 1500), (1, 40))),
    (Case(heads=4, kv_heads=4, dim=128, sinks=True), ((1, 20000), (1, 1))),  # blocks of ranges
]


@pytest.mark.parametrize(
    ("case", "sequences"),
    [MERGED[0], *(pytest.param(*row, marks=pytest.mark.long) for row in MERGED[1:])],
    ids=str,
)
def test_attention(case: Case, sequences: tuple[tuple[int, int], ...]) -> None:
    """Ranges that are merged by the workgroup that is last, in a padded decode step and beside a
    prompt; a row does not depend on its neighbours, to the bit."""
    given = inputs(case, sequences, padding=2)
    given.sequences += 2
    found = attend(given)
    np.testing.assert_allclose(from_pairs(found, SHIFTED), rows(given.expected), rtol=0, atol=2e-3)
    assert not found[-2:].any()
    mixed = inputs(case, (*sequences, (20, 33)))
    for s in range(len(sequences)):
        np.testing.assert_array_equal(attend(alone(given, s)), found[s : s + 1])
        np.testing.assert_array_equal(attend(alone(mixed, s)), attend(mixed)[s : s + 1])
    expected = rows(mixed.expected)
    np.testing.assert_allclose(from_pairs(attend(mixed), SHIFTED), expected, rtol=0, atol=5e-3)


def attend(given: Inputs, text: str = rounded.order_text(SHIFTED), gpu: Gpu = CUDA) -> Any:
    """The pairs of `attend_at_once`, or what `text` says."""
    case = given.case
    shape, layout = case.arguments
    shape = replace(shape, rounded=text)
    items = int(range_items(given.entries, given.sequences, case.page))
    made = [np.full((items, case.heads, n), np.nan, np.float32) for n in (case.dim, 2)]
    words = fp8_outputs.words_of(text, case.heads * case.dim)
    pairs = np.full((len(given.q), words), 77, np.uint32)
    counters = np.zeros(one_launch.counters_of(gpu, shape, layout), np.int32)
    tensors = [*given.tensors, counters, *given.sinks, given.sequences]
    out = [*made, np.full_like(given.q, np.nan), pairs]
    numbers = shape, layout, attention._prefill
    after = call(one_launch.attend_at_once, numbers, [*tensors, *out], gpu)
    assert not after[len(given.tensors)].any()
    return after[-1]


def rows(x: Any) -> Any:
    return x.reshape(len(x), -1)


GATED = [
    ((("t4_g32", 256),), 64, (0, 3, 20), SHIFTED, True),  # the halves of one weight
    ((("t4_g32", 128), ("t5_g32", 128)), 128, (0, 3, 8, 20, 33, 130), PLAIN, False),
    ((("int4_g32", 48), ("k5_g32", 48)), 96, (1, 17), PLAIN, False),
    ((("t4_g32", 128), ("t5_g32", 128)), 2176, (12,), PLAIN, False),  # shared out and in pairs
]


@pytest.mark.usefixtures("few_kernels")
@pytest.mark.parametrize(
    ("sizes", "k", "rows", "order", "bias"),
    [GATED[0], *(pytest.param(*case, marks=pytest.mark.long) for case in GATED[1:])],
    ids=str,
)
def test_gate_and_up(
    sizes: tuple[tuple[str, int], ...],
    k: int,
    rows: tuple[int, ...],
    order: tuple[int, ...],
    bias: bool,
) -> None:
    forms, tensors, whole = weights_of(sizes, k)
    b = [normal(9, len(whole))] if bias else []
    arguments = forms, bias, True, Gate("silu", order)
    for n in rows:
        x = in_pairs(normal(n, n, k), columns_of(forms[0]))
        made = np.full((n, len(whole)), 77, np.float32), np.full((n, len(whole) // 4), 7, np.uint32)
        after = call(gated_linear, arguments, [x, *scratch(), *tensors, *b, *made], CUDA)
        y, products = after[-2:]
        assert not after[1].any()
        np.testing.assert_array_equal(y, product(forms, [x, *scratch(), *tensors, *b], bias))
        np.testing.assert_allclose(from_pairs(products, order), gated(y), rtol=2 * HALF, atol=1e-6)
