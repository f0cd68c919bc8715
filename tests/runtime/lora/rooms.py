"""A model with adapter slots that needs no compile: the exact toy, declared with two layers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from mlcc.artifact.schema import AdaptersInfo, AdapterSite
from mlcc.device.toy.executor import ToyExecutor
from mlcc.engine.batch.batch import Capacity
from mlcc.model.model import Model
from tests.helpers.toy.toy_model import CAPACITY, toy_text
from tests.runtime.lora.folders import config_of, write_config

SITES = tuple(
    site
    for layer in range(2)
    for site in (
        AdapterSite(
            modules=tuple(f"model.layers.{layer}.self_attn.{x}_proj" for x in "qkv"),
            outputs=(8, 4, 4),
            inputs=8,
        ),
        AdapterSite(modules=(f"model.layers.{layer}.mlp.down_proj",), outputs=(8,), inputs=16),
    )
)
ROOM = AdaptersInfo(slots=3, rank=4, sites=SITES)
SIZES = {
    name: (site.inputs, size)
    for site in SITES
    for name, size in zip(site.modules, site.outputs, strict=True)
}


def with_slots(capacity: Capacity, slots: int = ROOM.slots) -> Capacity:
    return replace(capacity, layout=replace(capacity.layout, adapter_slots=slots))


def open_adapted_toy() -> Model:
    return Model(toy_text(), ToyExecutor(with_slots(CAPACITY)), adapters=ROOM)


def save_small(folder: Path, seed: int = 0, rank: int = 2, **config: object) -> Path:
    """A PEFT folder for it: q and down of both layers."""
    random = np.random.default_rng(seed)
    tensors = {}
    for module, (inputs, outputs) in SIZES.items():
        if module.endswith(("q_proj", "down_proj")):
            name = f"base_model.model.{module}"
            a, b = random.normal(size=(rank, inputs)), random.normal(size=(outputs, rank))
            tensors[f"{name}.lora_A.weight"] = a.astype(np.float32)
            tensors[f"{name}.lora_B.weight"] = b.astype(np.float32)
    folder.mkdir(parents=True, exist_ok=True)
    save_file(tensors, folder / "adapter_model.safetensors")
    plain = config_of(rank, 2 * rank, ["q_proj", "down_proj"])
    write_config(folder, plain | config)
    return folder
