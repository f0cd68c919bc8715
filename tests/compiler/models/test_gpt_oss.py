"""gpt-oss as published: experts in MXFP4, which are not requantized, beside bf16."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from mlcc.device.device import DeviceHandle
from mlcc_compiler.checkpoint.folder import Checkpoint
from mlcc_compiler.options import Options
from mlcc_compiler.plan import Plan, make_plan
from mlcc_targets import Choices, get_target
from tests.compiler.models.helpers.checkpoints import make_checkpoint
from tests.compiler.models.helpers.mixed import capacity_of, native, reference, run_mixed

E2M1 = [0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6]


def as_published(folder: Path) -> Any:
    """A random checkpoint with experts in MXFP4; and `transformers`' model with the dequantized
    ones."""
    oracle = make_checkpoint("gpt_oss", folder)
    tensors, random = load_file(folder / "model.safetensors"), np.random.default_rng(3)
    for name in [n for n in tensors if n.endswith(("gate_up_proj", "down_proj"))]:
        experts, k, n = tensors.pop(name).shape
        codes = random.integers(0, 16, (experts, n, k), dtype=np.uint8)
        exponents = random.integers(122, 126, (experts, n, k // 32), dtype=np.uint8)
        blocks = (codes[..., ::2] | (codes[..., 1::2] << 4)).reshape(experts, n, k // 32, 16)
        tensors[f"{name}_blocks"] = torch.tensor(blocks)
        tensors[f"{name}_scales"] = torch.tensor(exponents)
        scales = np.repeat(2.0 ** (exponents - 127.0), 32, axis=2)
        values = torch.tensor(np.asarray(E2M1)[codes] * scales).transpose(1, 2)
        oracle.get_parameter(name).data.copy_(values)
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    skipped = ["model.layers.*.self_attn", "model.layers.*.mlp.router", "lm_head"]
    config["quantization_config"] = {"quant_method": "mxfp4", "modules_to_not_convert": skipped}
    (folder / "config.json").write_text(json.dumps(config))
    return oracle


@pytest.fixture(scope="module")
def published(tmp_path_factory: Any) -> tuple[Any, Path]:
    folder = tmp_path_factory.mktemp("gpt-oss")
    return as_published(folder), folder


def planned(folder: Path, target: str) -> Plan:
    options = Options(quant="keep", context=128, max_batch=8, kv="f32")
    return make_plan(Checkpoint.open(folder), get_target(target), options)


def test_mxfp4_stays_and_equals_transformers(published: tuple[Any, Path]) -> None:
    oracle, folder = published
    plan = planned(folder, "reference")
    found = {name: scheme for name, scheme in plan.schemes.items() if ".experts." in name}
    assert len(found) == 2 * 5 * 3 and set(found.values()) == {"mxfp4"}
    assert run_mixed(reference(plan, capacity_of(plan)), oracle, 128) < 5e-5


@pytest.mark.usefixtures("vulkan")
def test_codes_are_packed_as_they_are(published: tuple[Any, Path], tmp_path: Path) -> None:
    """On a GPU, whose kernels multiply codes with floats. (A CPU's round those to 8 bits first,
    which may choose another expert.)"""
    oracle, folder = published
    plan = replace(planned(folder, "cpu"), target=get_target("vulkan", Choices(f16=False)))
    executor = native(plan, tmp_path, capacity_of(plan), DeviceHandle("webgpu"))
    error = run_mixed(executor, oracle, 128)
    executor.close()
    assert error < 1e-4


def test_one_expert_is_read_at_a_time(published: tuple[Any, Path], monkeypatch: Any) -> None:
    """Reads of a tensor with many experts are no larger than one expert."""
    _, folder = published
    plan = planned(folder, "reference")
    sizes: list[int] = []
    real = np.frombuffer

    def counted(data: Any, *rest: Any) -> Any:
        sizes.append(len(data))
        return real(data, *rest)

    monkeypatch.setattr(np, "frombuffer", counted)
    name = "model.layers.0.mlp.experts.3.up_proj.weight"
    plan.checkpoint.tensors.quantized(name).check(name)
    assert max(sizes) == 64 * 64 // 2
