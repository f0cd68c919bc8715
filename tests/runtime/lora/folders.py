"""Makes PEFT folders for tests, and a model with an adapter merged into its weights."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors.numpy import load_file, save_file

Array = npt.NDArray[Any]
DEMO = Path(__file__).parents[3] / "examples" / "demo" / "model"
ALL = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


def matrices(model: Path = DEMO) -> dict[str, Array]:
    """The model's tensors by name, in float32."""
    loaded = load_file(model / "model.safetensors")
    return {name: array.astype(np.float32) for name, array in loaded.items()}


def config_of(rank: int, alpha: float, targets: Any, **more: Any) -> dict[str, Any]:
    """adapter_config.json as PEFT 0.17 writes it, in short."""
    plain = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": "mlcc/demo",
        "bias": "none",
        "fan_in_fan_out": False,
        "inference_mode": True,
        "init_lora_weights": True,
        "lora_alpha": alpha,
        "lora_dropout": 0.05,
        "modules_to_save": None,
        "r": rank,
        "target_modules": targets,
        "use_dora": False,
        "use_rslora": False,
    }
    return plain | more


def save(
    folder: Path,
    rank: int = 4,
    alpha: float = 8,
    modules: Sequence[str] = ("q_proj", "v_proj"),
    seed: int = 0,
    size: float = 0.1,
    dtype: str = "float32",
    model: Path = DEMO,
    layers: Sequence[int] | None = None,
    targets: Any = None,
    **more: Any,
) -> Path:
    """An adapter of random matrices for these modules of all layers, or some of them."""
    random = np.random.default_rng(seed)
    tensors: dict[str, Array] = {}
    for name, weight in matrices(model).items():
        parts = name.split(".")
        if len(parts) < 4 or parts[-2] not in modules:
            continue
        if layers is not None and int(parts[2]) not in layers:
            continue
        outputs, inputs = weight.shape
        own = more.get("rank_pattern", {}).get(parts[-2], rank)
        module = "base_model.model." + name.removesuffix(".weight")
        a, b = random.normal(0, size, (own, inputs)), random.normal(0, size, (outputs, own))
        tensors[f"{module}.lora_A.weight"] = a.astype(dtype)
        tensors[f"{module}.lora_B.weight"] = b.astype(dtype)
    folder.mkdir(parents=True)
    save_file(tensors, folder / "adapter_model.safetensors")
    write_config(folder, config_of(rank, alpha, targets or list(modules), **more))
    return folder


def write_config(folder: Path, config: Mapping[str, Any]) -> None:
    (folder / "adapter_config.json").write_text(json.dumps(config))


def merged(
    out: Path, adapter: Path, scale: Mapping[str, float] | float, model: Path = DEMO
) -> Path:
    """A checkpoint with W + scale * B A, computed in float64 and kept in float32."""
    shutil.copytree(model, out)
    weights = matrices(model)
    added = load_file(adapter / "adapter_model.safetensors")
    for name, a in added.items():
        if ".lora_A" in name:
            module = name.removeprefix("base_model.model.").removesuffix(".lora_A.weight")
            b = added[name.replace("lora_A", "lora_B")]
            own = scale if isinstance(scale, (int, float)) else scale[module.split(".")[-1]]
            product = b.astype(np.float64) @ a.astype(np.float64)
            weights[f"{module}.weight"] = (
                weights[f"{module}.weight"].astype(np.float64) + own * product
            ).astype(np.float32)
    save_file(weights, out / "model.safetensors")
    return out
