"""Whole models compiled for devices that this machine lacks: every architecture, every kind of
weights.

The result is an artifact with machine code or text of every kernel; this machine refuses to open
it, in one line. Results of the same kernels are tested on Vulkan. All with --long; otherwise
without architectures whose parts are all in others.
"""

from __future__ import annotations

import platform
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mlcc.artifact.folder import Artifact
from mlcc.artifact.manifest import Manifest
from mlcc.artifact.schema import MANIFEST_NAME
from mlcc.errors import ArtifactError
from mlcc.util.machine import machine
from mlcc_compiler.checkpoint.folder import Checkpoint
from mlcc_compiler.compile import Progress, compile_model
from mlcc_compiler.options import Options
from mlcc_targets import Choices, get_target
from tests.compiler.models.helpers.checkpoints import RECIPES as ARCHITECTURES
from tests.compiler.models.helpers.checkpoints import long_if_repeated, make_checkpoint, proves
from tests.compiler.models.helpers.mtp import make_mtp_checkpoint
from tests.helpers import needs
from tests.targets.cuda.fat_binary import entries

TEXTS = {"metal": b"\nkernel void ", "ios": b"\nkernel void "}
TEXTS |= {"android": b"@compute ", "webgpu": b"@compute "}
"""How a kernel begins in a library that holds text; cuda's holds machine code."""

RECIPES = {**ARCHITECTURES, "deepseek_v2": "f16"}
ON_WEBGPU = ("llama",)
"""Only for its refusals and its float16; tests/e2e/web compiles and runs all of them."""
AS_TEXT = [case for case in ARCHITECTURES if case != "qwen3_next"]
"""Without models with many kernels, whose text tests/e2e/web compiles too."""
REPEATED = {("gemma3", "cuda"), ("gemma3", "metal"), ("qwen3_moe", "cuda")}
REPEATED |= {(case, target) for case in ("gemma3n", "gemma4") for target in ("cuda", "metal")}
REPEATED |= {(c, t) for c in ("cohere2", "nemotron", "glm4_moe") for t in ("cuda", "metal")}
REPEATED |= {(case, "android") for case in AS_TEXT if case != "llama"}
"""With --long only: Gemma 2 covers the window, on CUDA Qwen3-Next the experts;
tests/compiler/models/test_registry compiles the parts that only some of them have, and Android's
kernels are webgpu's, which tests/e2e/web runs."""
CASES = [
    *((case, "cuda") for case in RECIPES),
    *((case, target) for case in AS_TEXT for target in ("metal", "android")),
    *((case, "webgpu") for case in ON_WEBGPU),
    ("llama", "ios"),
]

MTP_FAMILIES = [
    "llama", "qwen2-window", "qwen3", "qwen3_next-experts", "qwen3_5", "qwen3_5_moe", "glm4_moe",
    "glm4_moe_lite", "deepseek_v3", "mimo", "ernie4_5_moe", "nemotron_h-experts",
]  # fmt: skip
MTP_BY_DEFAULT = {("llama", "webgpu"), ("qwen3", "metal")}
"""The others with --long only: their layers' kernels are those of the models above."""


def is_foreign(target: str) -> bool:
    """Whether this machine refuses a target's libraries on any device."""
    return target != "cuda" and (target, platform.system()) != ("metal", "Darwin")


def shown(case: str, target: str) -> Any:
    """A parameter with the features that its test proves; `ios` compiles like `metal`, see
    below."""
    quant = RECIPES[case].partition("_")[0]
    parts = [quant, "sampling", *(["f16-kv"] if quant != "f32" else [])]
    targets = ("metal", "ios") if target == "metal" else (target,)
    marks = [pytest.mark.feature(part, t, "compiles") for part in parts for t in targets]
    marks += proves(case, *targets, how="compiles")
    if is_foreign(target):
        refused = ("profile",) if target == "webgpu" else ("server", "profile")
        marks += [pytest.mark.feature(part, target, "refused") for part in refused]
    marks += [pytest.mark.long] if (case, target) in REPEATED else long_if_repeated(case)
    return pytest.param(case, target, marks=marks)


MTP_CASES = [
    pytest.param(
        case,
        target,
        marks=[
            pytest.mark.feature("mtp", target, "compiles"),
            *([] if (case, target) in MTP_BY_DEFAULT else [pytest.mark.long]),
        ],
    )
    for case in MTP_FAMILIES
    for target in ("webgpu", "metal", "cuda", "android", "ios")
]


@pytest.mark.parametrize(("case", "target"), MTP_CASES)
def test_a_multi_token_prediction_layer_compiles(case: str, target: str, tmp_path: Path) -> None:
    """Its kernels are the model's own."""
    needs.require_target(target)
    make_mtp_checkpoint(case, tmp_path)
    tokenizer = '{"model": {"type": "BPE", "vocab": {}, "merges": []}}'
    (tmp_path / "tokenizer.json").write_text(tokenizer)
    archs = ("sm_90",) if target == "cuda" else ()
    f16, gpu = True if target == "webgpu" else None, target == "android"
    row = get_target(target, Choices(archs=archs, f16=f16, gpu=gpu))
    options = Options(quant="q4_g32", context=64, mtp=True)
    out = compile_model(Checkpoint.open(tmp_path), row, tmp_path / "out", options, Progress())
    manifest = Manifest.from_bytes((out / MANIFEST_NAME).read_bytes())
    assert "forward_mtp" in manifest.functions and "hidden_row" in manifest.token_columns
    assert manifest.embeddings is not None
    assert (manifest.embeddings.slots, manifest.embeddings.width) == (0, 64)
    assert manifest.embeddings.hidden == manifest.limits.max_step_tokens


@pytest.mark.parametrize(("case", "target"), [shown(*pair) for pair in CASES])
def test_a_model_compiles(case: str, target: str, tmp_path: Path, record_property: Any) -> None:
    needs.require_target(target)
    (tmp_path / case).mkdir()
    make_checkpoint(case, tmp_path / case)
    tokenizer = '{"model": {"type": "BPE", "vocab": {}, "merges": []}}'
    (tmp_path / case / "tokenizer.json").write_text(tokenizer)
    # Without the alternative in float32, whose kernels are vulkan's
    # (tests/compiler/pipeline/test_variants).
    f16 = True if target == "webgpu" else None
    archs = ("sm_90",) if target == "cuda" else ()
    row = get_target(target, Choices(archs=archs, f16=f16, gpu=target == "android"))
    checkpoint, options = Checkpoint.open(tmp_path / case), Options(quant=RECIPES[case], context=64)
    out = compile_model(checkpoint, row, tmp_path / "out", options, Progress())

    manifest = Manifest.from_bytes((out / MANIFEST_NAME).read_bytes())
    assert {"forward", "sample", "copy_pages"} <= set(manifest.functions)
    dtype = "float32" if RECIPES[case] == "f32" else "float16"
    pages = [cache for cache in manifest.caches if cache.kind != "state"]
    assert {tensor.dtype for cache in pages for tensor in cache.tensors} == {dtype}
    library = (out / manifest.library.path).read_bytes()
    if target == "cuda":
        library = dict(entries(library))["sm_90"]
    else:
        assert library.count(TEXTS[target]) > 10
    for kernel in (b"sample_rows", b"append", b"attend"):
        assert kernel in library
    if is_foreign(target):
        with pytest.raises(ArtifactError) as caught:
            Artifact.open(out)
        refusal = caught.value.message.removeprefix(f"{out}: ")
        record_property("refusal", refusal.replace(f"{machine()} {platform.system()} ", ""))
        assert f"(target '{target}')" in refusal


def test_ios_and_metal_differ_in_host_code_linking_and_matrix_instructions_only() -> None:
    """All phases up to the text of the other kernels are the same for every model."""
    ios, metal = get_target("ios"), get_target("metal")
    names = ("name", "triple", "library", "extra_files", "symbol_prefix", "link")
    same = {name: getattr(metal, name) for name in (*names, "run_missing", "matrix_unit")}
    assert replace(ios, **same) == metal
    assert ios.arch == metal.arch == "aarch64"
