"""Products of 8-bit floats by activations rounded to 8-bit floats (`--activations 8`), on the
emulated device, against numpy with ml_dtypes' rounding."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from mlcc.device.reference import ops as twin
from mlcc_compiler.ir._tvm import tvm
from mlcc_compiler.kernels.gpu.device import Gpu
from mlcc_compiler.kernels.gpu.linear import split_weights
from mlcc_compiler.kernels.gpu.linear.fragments import fp8_outputs, joined, rounded_rows
from mlcc_compiler.kernels.gpu.linear.fragments.fp8_rows import Fp8Row, round_to_fp8, row_of
from mlcc_compiler.kernels.gpu.moe import experts as kernels
from mlcc_targets import Choices, get_target
from tests.compiler.kernels import test_moe as moe
from tests.compiler.kernels.cases import gpu_kernels
from tests.compiler.kernels.cases.attention import Case, inputs
from tests.compiler.kernels.linear import test_gpu_linear as linear
from tests.targets.cuda import emulation
from tests.targets.cuda import test_rounded_activations as rounded_activations
from tests.targets.cuda.test_emulated_kernels import compiled

pytestmark = pytest.mark.usefixtures("emulated")
CUDA = replace(Gpu.of(get_target("cuda")), fp8=True)
BY_GROUPS = replace(Gpu.of(get_target("cuda", Choices(archs=("sm_90a",)))), fp8=True)


@pytest.fixture(autouse=True)
def on_cuda(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    emulation.replace_nvcc(monkeypatch)
    monkeypatch.setattr(gpu_kernels, "compiled", lambda f, gpu, given: compiled(f, given, gpu=gpu))
    for module in (gpu_kernels, linear):
        monkeypatch.setattr(module, "device", lambda: tvm.device("cuda", 0))
    yield
    emulation.device().emulated_order(0)


def rounded(x: np.ndarray, row: Fp8Row) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The twin: codes, the scale of each group, and the values of x rounded."""
    groups = x.reshape(len(x), x.shape[1] // row.group, row.group)
    top = np.maximum(np.abs(groups).max(axis=2, keepdims=True), np.float32(1e-30))
    codes = (groups * (np.float32(448) / top)).astype(ml_dtypes.float8_e4m3fn)
    scales = top * np.float32(1 / 448)
    values = (codes.astype(np.float32) * scales).reshape(x.shape)
    return codes.reshape(x.shape).view(np.uint8), scales[:, :, 0], values


def words(gpu: Gpu, x: np.ndarray, row: Fp8Row) -> np.ndarray:
    """x as the kernel writes it."""
    parts = x.shape[1] // row.k
    given = np.full((len(x), parts * row.words), 7, np.uint32)
    return gpu_kernels.call(round_to_fp8, (x.shape[1], row), [x, given], gpu)[-1]


@pytest.mark.parametrize(
    ("rows", "parts", "row"),
    [(3, 2, Fp8Row(256, 128)), (66, 1, Fp8Row(384, 384, by_groups=True))],
)
def test_rounding_to_the_bit(rows: int, parts: int, row: Fp8Row) -> None:
    x = linear.normal(1, rows, parts * row.k) * np.float32(3)
    x[0, 5], x[1, : row.group] = 1e30, 0
    codes, scales, _ = rounded(x, row)
    found = words(CUDA, x, row).reshape(rows * parts, row.words)
    blocks = codes.reshape(rows * parts, row.k // 128, 4, 4, 2, 4)  # stretch, lane, word, byte
    order = (0, 1, 2, 4, 3, 5) if row.by_groups else (0, 1, 3, 2, 4, 5)
    expected = np.ascontiguousarray(blocks.transpose(order)).view("<u4")
    np.testing.assert_array_equal(found[:, : row.first_scale], expected.reshape(len(found), -1))
    of_groups = found[:, row.first_scale :][:, : row.groups]
    np.testing.assert_array_equal(
        np.ascontiguousarray(of_groups).view(np.float32).reshape(rows, -1), scales
    )


def product(gpu: Gpu, sizes: tuple[int, int], name: str, rows: int, *heights: int) -> Any:
    """(y, the twin's, the bound of float32 sums), by the variants of `heights` rows."""
    form = split_weights.packing(gpu, sizes, name)
    row, x = row_of(gpu, form), linear.normal(rows, rows, form.k)
    assert row is not None
    stored = form.pack(linear.normal(1, *sizes) + np.float32(0.1))
    weight, (_, _, values) = form.unpack(stored), rounded(x, row)
    y = np.full((rows, form.n), 77, np.float32)
    given = [x, words(gpu, x, row), *gpu_kernels.scratch(), *stored, y]

    def factory(gpu: Gpu, packing: Any, *counts: int) -> Any:
        return linear.many_rows(gpu, packing, *counts, single=True)

    y = gpu_kernels.call(factory, (form, *heights), given, gpu)[-1]
    bound = np.float32(2.0**-20) * (np.abs(values) @ np.abs(weight).T) + np.float32(1e-6)
    return y, values @ weight.T, bound


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize(
    ("gpu", "sizes", "name", "rows", "heights"),
    [
        (CUDA, (48, 256), "e4m3_g128", (5, 19), (8, 64)),
        (BY_GROUPS, (144, 256), "e4m3_g128", (70,), (128,)),
        pytest.param(
            CUDA, (144, 512), "e4m3_g256", (3, 9, 17, 60), (8, 16, 32, 64), marks=pytest.mark.long
        ),
        pytest.param(CUDA, (32, 384), "e4m3_row", (8, 70), (8, 128), marks=pytest.mark.long),
        pytest.param(BY_GROUPS, (16, 1152), "e4m3_row", (128,), (128,), marks=pytest.mark.long),
    ],
)
def test_products(
    gpu: Gpu, sizes: Any, name: str, rows: Any, heights: Any, descending: bool
) -> None:
    """W and x are given exactly, so that nothing is lost but float32's own."""
    emulation.device().emulated_order(descending)
    for count in rows:
        y, expected, bound = product(gpu, sizes, name, count, *heights)
        error = np.abs(y - expected)
        assert (error <= bound).all(), (count, error.max(), np.abs(expected).max())


def values_of(words: np.ndarray, row: Fp8Row) -> np.ndarray:
    """The numbers of rows in the order of lanes."""
    codes = np.ascontiguousarray(words[:, : row.first_scale]).view(ml_dtypes.float8_e4m3fn)
    blocks = codes.astype(np.float32).reshape(len(words), -1, 4, 4, 2, 4)
    scales = np.ascontiguousarray(words[:, row.first_scale :]).view(np.float32)[:, : row.groups]
    spread = np.repeat(scales, row.group, axis=1)
    return blocks.transpose(0, 1, 3, 2, 4, 5).reshape(len(words), row.k) * spread


def rounding_of(x: np.ndarray, row: Fp8Row) -> np.ndarray:
    """The most that x loses: half a unit in the last place of three bits."""
    groups = np.abs(x).reshape(len(x), -1, row.group).max(axis=2)
    least = np.repeat(groups / 448, row.group, axis=1) * 2.0**-10
    return np.maximum(np.abs(x) * 2.0**-4, least)


@pytest.mark.parametrize("row", [Fp8Row(384, 128), Fp8Row(2304, 2304)])
def test_rows_are_written_so(row: Fp8Row) -> None:
    """By a norm and a gated product."""
    text = fp8_outputs.text_of(CUDA, row)
    assert fp8_outputs.form_of(text, row.k) == row and not fp8_outputs.is_pairs(text)
    x, residual, w = (linear.normal(i, *s) for i, s in enumerate([(3, row.k)] * 2 + [(row.k,)]))
    shapes = [((3, row.k), "float32"), ((3, row.words), "uint32")]
    numbers = (row.k,), (row.k,), (row.k,), 1e-6, 1.0, text
    _, norm = gpu_kernels.run(
        rounded_rows.rounded_add_rms_norm, numbers, [x, residual, w], shapes, CUDA
    )
    both = linear.normal(7, 3, 2 * row.k)
    (product,) = gpu_kernels.run(
        rounded_rows.rounded_gated, ((2 * row.k,), "silu", text), [both], shapes[1:], CUDA
    )
    for found, expected in (
        (norm, twin.rms_norm(x + residual, w, 1e-6, 1.0)),
        (product, rounded_activations.gated(both)),
    ):
        error = np.abs(values_of(found, row) - expected)
        assert (error <= rounding_of(expected, row) * 1.001).all()


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize(
    ("gpu", "inner", "rows"),
    [
        (CUDA, 256, (0, 3, 19)),
        pytest.param(CUDA, 384, (8, 40, 70), marks=pytest.mark.long),
        pytest.param(BY_GROUPS, 256, (5, 100), marks=pytest.mark.long),
    ],
)
def test_gate_and_up_write_rows_so(
    gpu: Gpu, inner: int, rows: tuple[int, ...], descending: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The workgroup that is last with the tiles of a group, or a launch of its own, of what gate
    and up are; counters are 0 again."""
    emulation.device().emulated_order(descending)
    forms = tuple(split_weights.packing(gpu, (inner, 256), "e4m3_g128") for _ in range(2))
    row, x_row = Fp8Row(inner, 128, gpu.warp_groups), row_of(gpu, forms[0])
    assert x_row is not None
    monkeypatch.setattr(joined, "ROWS", (16, 64, 128) if max(rows) > 16 else (16,))
    stored = [form.pack(linear.normal(i, inner, 256)) for i, form in enumerate(forms)]
    tensors = [array for arrays in stored for array in arrays]
    whole = np.concatenate([f.unpack(arrays) for f, arrays in zip(forms, stored, strict=True)])
    for n in rows:
        x, shape = linear.normal(n, n, 256), (n, row.words)
        made = np.full((n, 2 * inner), 77, np.float32), np.full(shape, 77, np.uint32)
        given = [words(gpu, x, x_row), *gpu_kernels.scratch(), *tensors, *made]
        arguments = forms, False, True, joined.Gate("silu", (), row)
        after = gpu_kernels.call(joined.gated_linear, arguments, given, gpu)
        _, _, values = rounded(x, x_row)
        bound = np.float32(2.0**-20) * (np.abs(values) @ np.abs(whole).T) + np.float32(1e-6)
        assert (np.abs(after[-2] - values @ whole.T) <= bound).all() and not after[1].any()
        numbers = (2 * inner,), "silu", fp8_outputs.text_of(gpu, row)
        (alone,) = gpu_kernels.run(
            rounded_rows.rounded_gated, numbers, [after[-2]], [(shape, "uint32")], gpu
        )
        np.testing.assert_array_equal(after[-1], alone)


@pytest.mark.parametrize(
    ("case", "text"),
    [
        (Case(heads=4, kv_heads=2, dim=128, dtype="float16"), "e128"),
        pytest.param(
            Case(heads=6, kv_heads=1, dim=256, dtype="float16"), "e128e", marks=pytest.mark.long
        ),
    ],
    ids=str,
)
def test_attention_writes_rows_so(case: Case, text: str) -> None:
    """A group is of one head: merged ranges in a padded decode step, and beside a prompt."""
    row = fp8_outputs.form_of(text, case.heads * case.dim)
    assert row is not None and fp8_outputs.fits_heads(text, case.dim)
    for sequences, padding in ((((1, 300), (1, 16)), 2), (((1, 129), (20, 33)), 1)):
        given = inputs(case, sequences, padding=padding)
        given.sequences += padding
        found = values_of(rounded_activations.attend(given, text, CUDA), row)
        expected = given.expected.reshape(found.shape)
        bound = rounding_of(expected, row) + np.float32(5e-3)
        assert (np.abs(found - expected) <= bound).all()
        assert not found[-padding:].any() and found[:-padding].any(axis=1).all()


def test_heads_that_are_no_whole_groups_are_not_written_so() -> None:
    assert not any(fp8_outputs.fits_heads(text, 64) for text in ("e128", "e0", "e0e", ""))
    assert not fp8_outputs.fits_heads("e0", 128)  # a scale for all heads
    assert fp8_outputs.fits_heads("01234567", 64)


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "each", "tokens"), [("e4m3_g128", False, (3, 25)), ("e4m3_row", True, (2, 12))]
)
def test_experts(name: str, each: bool, tokens: tuple[int, ...]) -> None:
    """By token, and tiles of 16 and 64; each: of a part of x of its own."""
    (count, n_out, k), experts, chosen = (6, 32, 256), 6, 2
    form = kernels.stored(CUDA, (count, n_out, k), name)
    row, stored = row_of(CUDA, form, experts=True), form.pack(linear.normal(0, count * n_out, k))
    assert row is not None
    matrices = form.unpack(stored).reshape(count, n_out, k)
    numbers = kernels.ExpertLinearShape(
        count, experts, chosen, chosen * k if each else k, row.words
    )
    for n in tokens:
        x, choice = linear.normal(n, n, numbers.width), moe.choices(n, n, experts, chosen)
        _, _, values = rounded(x.reshape(-1, k), row)
        found, y = moe.ordered(CUDA, choice, experts), np.full((n, chosen * n_out), 77, np.float32)
        given = [x, words(CUDA, x, row), *gpu_kernels.scratch(), choice, *found, *stored, y]
        y = gpu_kernels.call(kernels.expert_part, (form, 0, numbers), given, CUDA)[-1]
        values = values.reshape(x.shape)
        expected = moe.twin.expert_linear(values, choice, *matrices, experts=experts)
        most = moe.twin.expert_linear(np.abs(values), choice, *np.abs(matrices), experts=experts)
        assert (np.abs(y - expected) <= 2.0**-20 * most + 1e-6).all(), n
