"""A config.json with the old and the new name of one fact: the value that transformers takes.

Oracle: the config that transformers reads from the file and writes anew, which has new names only.
"""

from __future__ import annotations

import importlib
import inspect
import json
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import pytest

from mlcc_compiler.checkpoint.folder import flatten_config
from mlcc_compiler.models.config import rope_note
from mlcc_compiler.models.registry import build_model
from tests.compiler.models.helpers.checkpoints import CASES, config_of

LINEAR = {"rope_type": "linear", "factor": 2.0}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}
ROPES: dict[str, dict[str, Any]] = {
    "linear": {"rope_scaling": LINEAR},
    "older": {"rope_scaling": {"type": "linear", "factor": 2.0}, "rope_theta": 7e4},
    "yarn": {"rope_scaling": YARN | {"rope_theta": 5e4}, "rope_theta": 7e4},
    "length": {"rope_scaling": YARN, "original_max_position_embeddings": 32},
    "theta": {"rope_theta": 7e4},
    "null": {"rope_scaling": None},
    "one": {"rope_parameters": LINEAR | {"rope_theta": 9e3}},
    "one, its type's older name": {"rope_parameters": {"type": "linear", "factor": 2.0}},
}
OLDER_NAMES = (
    ("lfm2", {"block_ff_dim": 48, "tie_embedding": False}),
    ("nemotron_h-experts", {"mamba_n_groups": 4, "mamba_d_conv": 3, "mamba_conv_bias": False}),
    ("granitemoehybrid", {"layers_block_type": ["mamba"] * 3}),
    ("gemma3", {"rope_local_base_freq": 5000.0, "sliding_window_pattern": 3}),
)
UNSCALED = {"gemma4", "phi3", "mamba2", "kimi_linear", "nemotron_h"}
"""Without these types of rope, in transformers too."""
SHOWN = {"llama", "gemma3", "olmo3", "mistral4"}
"""Whose ropes are tried without --long: one rope, several, and a default of its own."""


def plain(case: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json.dumps(config_of(case).to_dict()))
    return found


def cases() -> Iterator[Any]:
    """One case of each family."""
    families = {config_of(case).model_type: case for case in reversed(CASES)}
    for family, case in families.items():
        names: dict[str, str] = type(config_of(case)).attribute_map
        for alias, field in names.items():
            value = getattr(config_of(case), field, None)
            if type(value) is int and "head_dim" not in alias:
                yield pytest.param(case, {alias: value * 2}, id=f"{case}-{alias}")
        if family.removesuffix("_text") not in UNSCALED:
            marks = [] if case in SHOWN else [pytest.mark.long]
            for name, rope in ROPES.items():
                yield pytest.param(case, rope, id=f"{case}-{name}", marks=marks)
    yield from (pytest.param(case, more, id=f"{case}-older") for case, more in OLDER_NAMES)


@pytest.mark.parametrize(("case", "more"), cases())
def test_both_names_in_one_config(case: str, more: dict[str, Any]) -> None:
    given = plain(case) | deepcopy(more)
    resolved = type(config_of(case)).from_dict(deepcopy(given)).to_dict()
    assert build_model(given, 256).config == build_model(resolved, 256).config


def test_a_rope_beside_text_config_is_not_the_texts() -> None:
    inner = plain("gemma3")
    outer = {
        "model_type": "gemma3",
        "text_config": inner,
        "rope_scaling": LINEAR,
        "rope_theta": 5.0,
    }
    assert flatten_config(outer) == inner
    scaled = flatten_config({**outer, "text_config": inner | {"rope_scaling": LINEAR}})
    assert build_model(scaled, 256).config.ropes != build_model(inner, 256).config.ropes


def test_which_of_two_ropes_the_compile_reports() -> None:
    both = {"rope_scaling": LINEAR, "rope_parameters": {"rope_type": "default", "rope_theta": 1e6}}
    assert rope_note(both) == (
        "config.json's 'rope_scaling' is used instead of 'rope_parameters', without the latter's "
        "'rope_theta'"
    )
    assert rope_note({"rope_scaling": LINEAR}) is None
    assert rope_note({"rope_parameters": LINEAR, "model_type": "llama"}) is None
    unread = rope_note({"rope_parameters": LINEAR, "model_type": "gemma3_text"})
    assert unread is not None and "'rope_parameters' is not used" in unread
    assert rope_note({"rope_scaling": LINEAR, "rope_parameters": LINEAR}) is None


@pytest.mark.parametrize("key", ["hidden_act", "hidden_activation"])
def test_the_activation_of_the_key_that_the_family_reads(key: str) -> None:
    """Gemma 1's published configs have both keys. Oracle: the source of transformers' classes."""
    for family, case in {config_of(case).model_type: case for case in reversed(CASES)}.items():
        place = f"transformers.models.{family.removesuffix('_text')}"
        name = f"{place}.modeling_{family.removesuffix('_text')}"
        source = inspect.getsource(importlib.import_module(name))
        if f"config.{key}" in source:
            continue
        given = plain(case)
        assert build_model(given | {key: "relu"}, 256).config == build_model(given, 256).config, (
            family
        )
