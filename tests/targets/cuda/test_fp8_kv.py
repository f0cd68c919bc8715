"""Pages of 8-bit floats (`--kv fp8`) on the emulated device: rounding against ml_dtypes, attention
against the twin, and a model against the reference that rounds equally."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from mlcc.artifact.kv_format import check_kv, kv_dtype
from mlcc.artifact.manifest import Manifest
from mlcc.artifact.schema import MANIFEST_NAME
from mlcc.device.reference import ops as twin
from mlcc.device.reference.attention import E4M3, append_kv, round_heads, round_heads_fp8
from mlcc.errors import UnsupportedError
from mlcc.loader import open_model
from mlcc.model.model import Model
from mlcc_compiler.checkpoint.folder import Checkpoint
from mlcc_compiler.compile import Progress, compile_model
from mlcc_compiler.ir._tvm import tvm
from mlcc_compiler.ir.layout import FP8_WORDS, KvLayout
from mlcc_compiler.kernels.gpu.device import Gpu
from mlcc_compiler.kernels.gpu.kv_cache import append
from mlcc_compiler.options import Options
from mlcc_targets import get_target
from tests.compiler.kernels.attention.test_gpu_attention import check
from tests.compiler.kernels.attention.test_kv_int8 import awkward
from tests.compiler.kernels.cases import gpu_kernels
from tests.compiler.kernels.cases.attention import MIXED, Case
from tests.compiler.kernels.cases.step import LAYOUTS
from tests.e2e.demo.equality import compare, greedy_tokens, last_logits
from tests.targets.cuda import emulation
from tests.targets.cuda.conftest import DEMO
from tests.targets.cuda.test_emulated_kernels import compiled

CUDA = Gpu.of(get_target("cuda"))
PAGE = 4


@pytest.fixture
def on_cuda(emulated: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    emulation.replace_nvcc(monkeypatch)
    monkeypatch.setattr(gpu_kernels, "compiled", lambda f, gpu, given: compiled(f, given, gpu=gpu))
    monkeypatch.setattr(gpu_kernels, "device", lambda: tvm.device("cuda", 0))
    yield
    emulation.device().emulated_order(0)


def test_the_twin_rounds_as_ml_dtypes_does() -> None:
    every = np.arange(256, dtype=np.uint8)
    np.testing.assert_array_equal(E4M3, every.view(ml_dtypes.float8_e4m3fn).astype(np.float32))
    rows = awkward(3, 64)
    codes, scales = round_heads_fp8(rows)
    largest = np.abs(rows).max(-1)
    rounds = np.isfinite(largest) & (largest >= 2.0**-119)
    factor = np.float32(448) / np.where(rounds, largest, 1)
    small = np.where(rounds[..., None], rows, 0) * factor[..., None]
    expected = np.clip(small, -448, 448).astype(ml_dtypes.float8_e4m3fn).view(np.uint8)
    np.testing.assert_array_equal(codes, expected)
    with np.errstate(invalid="ignore"):  # 0 * inf is NaN
        back = E4M3[codes] * scales[..., None]
    finite = np.isfinite(rows).all(-1)
    assert np.isfinite(back[finite]).all() and not np.isfinite(back[~finite]).any()


def test_the_error_of_heads_of_normal_numbers() -> None:
    """What docs/quantization.md says of both kinds of 8-bit pages."""
    rows = np.random.default_rng(0).standard_normal((500, 4, 128)).astype(np.float32)
    codes, scales = round_heads_fp8(rows)
    integers, steps = round_heads(rows)
    floats = E4M3[codes] * scales[..., None]
    size = np.linalg.norm(rows)
    assert 0.024 < np.linalg.norm(floats - rows) / size < 0.028
    assert 0.005 < np.linalg.norm(integers * steps[..., None] - rows) / size < 0.008


def near(found: Any, kept: Any, expected: Any, scales: Any) -> None:
    """Equal codes except for a few that are neighbours, as the device may multiply otherwise."""
    np.testing.assert_allclose(kept, scales, rtol=1e-6)
    codes = found.view(np.uint8)
    apart = np.abs((codes & 127).astype(int) - (expected & 127))
    assert apart.max() <= 1 and (apart != 0).mean() < 0.01
    zero = (codes & 127 == 0) & (expected & 127 == 0)
    assert ((codes ^ expected) & 128 == 0)[~zero].all()


@pytest.mark.parametrize("descending", [False, True])
def test_append(on_cuda: None, descending: bool) -> None:
    emulation.device().emulated_order(descending)
    heads, dim = 3, 64
    k, v = awkward(heads, dim), awkward(heads, dim)[::-1].copy()
    pages = np.random.default_rng(0).integers(0, 127, (5, 2, heads, PAGE, dim)).astype(np.uint8)
    scales = gpu_kernels.normal(4, 5, 2, heads, PAGE)
    slots = np.random.default_rng(1).permutation(5 * PAGE)[: len(k)].astype(np.int32)
    slots[11] = -1
    expected, own = pages.copy(), scales.copy()
    append_kv(k, v, slots, expected, own)
    layout = KvLayout(PAGE, FP8_WORDS, heads, dim, LAYOUTS[0], 0)
    given = [k, v, slots, pages.view(np.uint32), scales]
    *_, out, kept = gpu_kernels.call(append.append_kv, (layout,), given, CUDA)
    near(out, kept, expected, own)


def test_rotate_and_append(on_cuda: None) -> None:
    heads, kv_heads, dim, rotary = 9, 3, 64, 16
    slots = np.array([3, 7, -1, 19, 18, 4], np.int32)
    qkv = gpu_kernels.normal(0, 6, (heads + 2 * kv_heads) * dim)
    inv_freq = (100.0 ** (-np.arange(0, rotary, 2) / rotary)).astype(np.float32)
    table = twin.rope_table(np.arange(6, dtype=np.int32), inv_freq, 1.0)
    pages = np.zeros((5, 2, kv_heads, PAGE, dim), np.uint8)
    scales = gpu_kernels.normal(4, 5, 2, kv_heads, PAGE)
    q, k, v = np.split(qkv.reshape(6, -1, dim), [heads, heads + kv_heads], axis=1)
    expected, own = pages.copy(), scales.copy()
    append_kv(twin.rope(k, table), v, slots, expected, own)
    arguments = (KvLayout(PAGE, FP8_WORDS, kv_heads, dim, LAYOUTS[0], 0), heads, rotary, None)
    given = [
        qkv,
        table,
        slots,
        pages.view(np.uint32),
        scales,
        np.zeros((6, heads, dim), np.float32),
    ]
    *_, found, kept, out = gpu_kernels.call(append.rotate_and_append, arguments, given, CUDA)
    np.testing.assert_allclose(out, twin.rope(q, table), rtol=0, atol=1e-5)
    near(found, kept, expected, own)


@pytest.mark.parametrize(
    "case",
    [
        Case(dtype=FP8_WORDS),
        Case(8, 2, dim=192, window=33, softcap=5.0, dtype=FP8_WORDS),  # by wmma
    ],
)
def test_attention(on_cuda: None, case: Case) -> None:
    """Decode and prompts, which read codes as float16."""
    check(case, MIXED, CUDA)


@pytest.fixture(scope="module")
def folders(emulated: None, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The demo with weights in float32: with fp8 pages for the device and for numpy, and exact."""
    made, checkpoint = {}, Checkpoint.open(DEMO)
    with pytest.MonkeyPatch.context() as patch:
        emulation.replace_nvcc(patch)
        for target, kv in (("cuda", "fp8"), ("reference", "fp8"), ("reference", "f32")):
            options = Options(quant="f32", context=128, kv=kv, max_batch=2)
            name = f"{target}-{kv}"
            made[name] = tmp_path_factory.mktemp("kv") / name
            compile_model(checkpoint, get_target(target), made[name], options, Progress())
    return made


@pytest.fixture
def models(folders: dict[str, Path]) -> Iterator[dict[str, Model]]:
    opened = {name: open_model(folder) for name, folder in folders.items()}
    yield opened
    for model in opened.values():
        model.close()


@pytest.mark.feature("fp8-kv", "reference", "runs")
@pytest.mark.feature("fp8-kv", "cuda", "compiles")
def test_a_model_answers_as_the_reference(models: dict[str, Model], record_property: Any) -> None:
    """Attention of a prompt has float16 tiles, after which a number that lies between two codes may
    become the other one: half of what fp8 pages cost at most. A step of one token is as exact as
    float32."""
    gpu, reference, exact = models["cuda-fp8"], models["reference-fp8"], models["reference-f32"]
    encode = gpu.text.encode_prompt
    errors = []
    for text in ("What is 3 + 4?", "red and green", "one two three four five six seven"):
        found = [last_logits(model, encode(text)) for model in (gpu, reference, exact)]
        errors.append([np.square(found[i] - found[i + 1]).mean() for i in range(2)])
    of_device, of_pages = np.sqrt(np.mean(errors, axis=0))
    record_property("rms_error", (float(of_device), float(of_pages)))
    assert of_device < of_pages / 2
    one = encode("x")
    assert len(one) == 1
    assert np.abs(last_logits(gpu, one) - last_logits(reference, one)).max() < 1e-4
    answers = (greedy_tokens(model, [one], 8) for model in (gpu, reference))
    for row in zip([one], *answers, strict=True):
        compare(reference, *row, 0.05)


def test_the_manifest_names_it(folders: dict[str, Path]) -> None:
    manifest = Manifest.from_bytes((folders["cuda-fp8"] / MANIFEST_NAME).read_bytes())
    assert {kv_dtype(cache) for cache in manifest.caches} == {"fp8 with scales"}
    check_kv(manifest, "fp8")
    with pytest.raises(UnsupportedError, match=r"--kv int8 is requested, .* compiled for fp8"):
        check_kv(manifest, "int8")


@pytest.mark.parametrize("name", ["cpu", "vulkan", "webgpu"])
def test_other_targets_refuse_it(tmp_path: Path, name: str) -> None:
    with pytest.raises(UnsupportedError, match="no 8-bit floats; use --kv int8"):
        compile_model(
            Checkpoint.open(DEMO), get_target(name), tmp_path / "m", Options(kv="fp8"), Progress()
        )
    assert not (tmp_path / "m").exists()
