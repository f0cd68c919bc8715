"""Ollama's descriptions of models (/api/tags, /api/show, /api/ps), built from plain values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mlcc.api.openai.models import ModelInfo

VERSION = "0.12.11"
"""The version of Ollama's API that is implemented. Clients check it before they use tools, thinking
or log-probabilities."""
RUNNING = "Ollama is running: mlcc answers for it, and as OpenAI's API at /v1"
"""The text of /. Clients look for its first three words."""
FOREVER = "9999-12-31T23:59:59Z"
"""`expires_at` of a model that stays loaded."""

_NUMBERS = {
    "embedding_length": "hidden_size",
    "block_count": "num_hidden_layers",
    "feed_forward_length": "intermediate_size",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
    "attention.key_length": "head_dim",
}
"""GGUF's names for numbers of a config.json."""


def entry(name: str, since: str, about: ModelInfo) -> dict[str, Any]:
    """A model of /api/tags; /api/ps adds the fields of a loaded one."""
    return {
        "name": f"{name}:latest",
        "model": f"{name}:latest",
        "modified_at": since,
        "size": about.weights_bytes,
        "digest": about.digest,
        "details": details(about),
    }


def loaded(name: str, since: str, about: ModelInfo, context: int) -> dict[str, Any]:
    """A model of /api/ps."""
    model = entry(name, since, about)
    del model["modified_at"]
    return {
        **model,
        "size": about.device_bytes,
        "size_vram": about.device_bytes if about.device != "cpu" else 0,
        "expires_at": FOREVER,
        "context_length": context,
    }


def details(about: ModelInfo) -> dict[str, Any]:
    """Family, format, number of weights and quantization."""
    return {
        "parent_model": "",
        "format": "mlcc",
        "family": about.architecture,
        "families": [about.architecture],
        "parameter_size": parameter_size(about.parameters),
        "quantization_level": about.quantization,
    }


def parameter_size(count: int) -> str:
    """A number of weights as Ollama writes it: 4.5M, 1.2B; "" = unknown."""
    for unit, letter in ((10**12, "T"), (10**9, "B"), (10**6, "M"), (10**3, "K")):
        if count >= unit:
            return f"{count / unit:.1f}{letter}"
    return str(count) if count else ""


def show(
    name: str,
    since: str,
    about: ModelInfo,
    context: int,
    template: str,
    sampling: Mapping[str, Any],
    capabilities: Sequence[str],
) -> dict[str, Any]:
    """The answer of /api/show. `context`: the context the model is loaded with, not its maximum."""
    family = about.architecture
    numbers = {
        f"{family}.{ours}": about.config[theirs]
        for ours, theirs in _NUMBERS.items()
        if isinstance(about.config.get(theirs), int)
    }
    parameters = [(key, value) for key, value in sampling.items() if value is not None]
    return {
        "modelfile": f"# loaded by mlcc; `mlcc serve {name}` serves it\nFROM {name}\n",
        "parameters": "\n".join(f"{key:<30} {value}" for key, value in parameters),
        "template": template,
        "license": "",
        "details": details(about),
        "model_info": {
            "general.architecture": family,
            "general.name": name,
            **({"general.parameter_count": about.parameters} if about.parameters else {}),
            f"{family}.context_length": context,
            f"{family}.vocab_size": about.vocab_size,
            **numbers,
        },
        "capabilities": [*capabilities],
        "modified_at": since,
    }


def capabilities(tools: bool, infill: bool, thinking: bool, vision: bool = False) -> list[str]:
    """The abilities of a model, in Ollama's words."""
    abilities = {"completion": True, "tools": tools, "insert": infill, "thinking": thinking}
    abilities["vision"] = vision
    return [name for name, can in abilities.items() if can]
