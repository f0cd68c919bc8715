"""Errors that code generation would find late are refused at the start of a compile."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from mlcc.errors import MlccError, UnsupportedError
from mlcc_compiler import compile as compiling
from mlcc_compiler.checkpoint.folder import Checkpoint
from mlcc_compiler.compile import Progress, compile_model
from mlcc_compiler.options import Options
from mlcc_compiler.plan import make_plan
from mlcc_targets import Target, get_target
from tests.runtime.commands.tiny_checkpoint import write_checkpoint


def _without_tokenizer(folder: Path) -> None:
    (folder / "tokenizer.json").unlink()


def _with_a_large_end(folder: Path) -> None:
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [1, 260]}))


def _with_a_path_for_a_template(folder: Path) -> None:
    templates = [{"name": "../x", "template": "y"}]
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": templates}))


def _with_integers(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    name = "model.layers.1.mlp.up_proj.weight"
    save_file(tensors | {name: tensors[name].astype(np.int8)}, folder / "model.safetensors")


@pytest.mark.parametrize(
    ("damage", "gist"),
    [
        (_without_tokenizer, "has no tokenizer.json"),
        (_with_a_large_end, "id 260 is outside the vocabulary of 260"),
        (_with_a_path_for_a_template, "chat template name '../x'"),
        (_with_integers, "up_proj.weight' in model.safetensors is int8"),
    ],
)
def test_refused_before_any_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: Any, gist: str
) -> None:
    folder = write_checkpoint(tmp_path / "model")
    damage(folder)
    monkeypatch.setattr(compiling, "ArtifactWriter", None)
    with pytest.raises(MlccError, match=gist):
        compile_model(
            Checkpoint.open(folder), get_target("cpu"), tmp_path / "out", Options(), Progress()
        )


def test_bounds_default_to_the_target_row(tmp_path: Path) -> None:
    checkpoint, row = Checkpoint.open(write_checkpoint(tmp_path / "model")), get_target("cpu")

    def bounds(target: Target, options: Options) -> tuple[int, int, int]:
        limits = make_plan(checkpoint, target, options).limits
        return limits.max_batch, limits.max_step_tokens, limits.max_rows

    assert bounds(row, Options()) == (8, 512, 8)
    server = replace(row, max_batch=256, max_step_tokens=2048)
    assert bounds(server, Options()) == (256, 2048, 256)
    assert bounds(server, Options(max_batch=2, max_step_tokens=64, max_rows=5)) == (2, 64, 5)
    cuda = get_target("cuda")
    assert (cuda.max_batch, cuda.max_step_tokens) == (256, 2048)


def test_a_step_that_no_binding_holds_is_refused(tmp_path: Path) -> None:
    """WebGPU bounds the size of a kernel argument: refused while compiling, not at a step."""
    vulkan = get_target("vulkan")
    small = replace(vulkan, limits={**vulkan.limits, "storage_binding_bytes": 100_000})
    checkpoint = Checkpoint.open(write_checkpoint(tmp_path / "model"))
    with pytest.raises(UnsupportedError, match=r"binds up to 100\.00 kB; use a smaller --context"):
        compile_model(checkpoint, small, tmp_path / "out", Options(), Progress())
    assert not (tmp_path / "out").exists()
