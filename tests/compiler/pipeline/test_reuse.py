"""Reuse of the weights of an earlier compile: linked, repacked, or refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mlcc.artifact.folder import Artifact
from mlcc.artifact.safetensors import read_header
from mlcc.errors import UnsupportedError
from mlcc.loader import open_model
from mlcc_compiler.checkpoint.folder import Checkpoint
from mlcc_compiler.compile import Progress, compile_model
from mlcc_compiler.options import Options
from mlcc_targets import Choices, Target, get_target
from tests.e2e.demo.equality import last_logits
from tests.runtime.commands.tiny_checkpoint import write_checkpoint

SHARD = "weights-00001-of-00001.safetensors"
VULKAN = get_target("vulkan")
SMALL_BINDINGS = replace(VULKAN, limits={**VULKAN.limits, "storage_binding_bytes": 16384})
"""The tiny model's table, 16640 bytes of codes, is in parts; SHORT steps still fit."""
SHORT = {"context": 64, "max_batch": 1, "max_step_tokens": 16}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: Any) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("tiny") / "model")


@pytest.fixture(scope="module")
def whole(checkpoint: Path, tmp_path_factory: Any) -> Path:
    return compiled(checkpoint, VULKAN, tmp_path_factory.mktemp("vulkan") / "out")


def compiled(checkpoint: Path, target: Target, out: Path, **options: Any) -> Path:
    opened = Checkpoint.open(checkpoint)
    return compile_model(opened, target, out, Options(**{**SHORT, **options}), Progress())


def test_equal_layouts_share_the_file(checkpoint: Path, whole: Path, tmp_path: Path) -> None:
    target = get_target("vulkan", Choices(f16=False))
    out = compiled(checkpoint, target, tmp_path / "out", reuse_weights=whole)
    assert (out / SHARD).samefile(whole / SHARD)
    Artifact.open(out)  # hashes every file


@pytest.mark.parametrize("order", ["joined", "cut"])
def test_parts_are_joined_and_cut(
    checkpoint: Path, whole: Path, tmp_path: Path, order: str
) -> None:
    parts = compiled(checkpoint, SMALL_BINDINGS, tmp_path / "parts")
    assert len(read_header(parts / SHARD)) > len(read_header(whole / SHARD))
    target, source, direct = {
        "joined": (VULKAN, parts, whole),
        "cut": (SMALL_BINDINGS, whole, parts),
    }[order]
    out = compiled(checkpoint, target, tmp_path / "out", reuse_weights=source)
    assert (out / SHARD).read_bytes() == (direct / SHARD).read_bytes()
    manifests = [json.loads((folder / "mlcc.json").read_text()) for folder in (out, direct)]
    assert manifests[0]["weights"] == manifests[1]["weights"]


def test_other_weights_and_other_layouts_are_refused(
    checkpoint: Path, whole: Path, tmp_path: Path
) -> None:
    def refusal(source: Path, target: Target, **options: Any) -> str:
        with pytest.raises(UnsupportedError) as caught:
            compiled(source, target, tmp_path / "out", reuse_weights=whole, **options)
        assert not (tmp_path / "out").exists()
        return caught.value.message

    assert "stored otherwise (target vulkan, --quant q4)" in refusal(checkpoint, get_target("cpu"))
    assert "stored otherwise" in refusal(checkpoint, VULKAN, quant="q8")
    cuda = get_target("cuda", Choices(archs=("sm_90",)))  # in the order of tensor cores
    assert "stored otherwise" in refusal(checkpoint, cuda)
    other = write_checkpoint(tmp_path / "other")
    weights = other / "model.safetensors"
    data = bytearray(weights.read_bytes())
    floats = np.frombuffer(memoryview(data)[-4096:], np.float32)
    assert np.isfinite(floats).all()
    data[-4096:] = (floats + np.float32(0.5)).tobytes()
    weights.write_bytes(data)
    message = refusal(other, VULKAN)
    assert "compiled from other weights" in message and "leave out --reuse-weights" in message


@pytest.mark.usefixtures("vulkan")
def test_weights_in_parts_compute_the_same(checkpoint: Path, whole: Path, tmp_path: Path) -> None:
    """Bit for bit: a part's rows are computed as they would be in the whole."""
    parts = compiled(checkpoint, SMALL_BINDINGS, tmp_path / "parts")
    logits = []
    for folder in (whole, parts):
        model = open_model(folder)
        logits.append([last_logits(model, range(3, 3 + count)) for count in (1, 16)])
        model.close()
    np.testing.assert_array_equal(*logits)
    assert np.std(logits[0]) > 0.01
