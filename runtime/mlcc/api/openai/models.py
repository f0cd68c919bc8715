"""Entries of /v1/models, and what they report about an artifact."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from functools import cached_property
from typing import Any

from mlcc.api.openai.shapes import ImageSize, Model, ModelPermission, ModelState
from mlcc.util.fast_dataclass import fast_dataclass


@fast_dataclass(frozen=True)
class ModelInfo:
    """Metadata of an artifact; the defaults describe a model without one."""

    architecture: str = "unknown"
    """The checkpoint's `model_type`: llama, qwen2, ..."""
    quantization: str = "unknown"
    device: str = "cpu"
    """The device it was compiled for: cpu, cuda, metal, vulkan, webgpu."""
    config: Mapping[str, Any] = field(default_factory=dict)
    """The numbers of the architecture, from the manifest."""
    vocab_size: int = 0
    parameters: int = 0
    """Number of weights; 0 = unknown."""
    weights_bytes: int = 0
    """Bytes of the weights in the artifact."""
    device_bytes: int = 0
    """Planned bytes of weights, caches and scratch memory on the device."""
    sampling: Mapping[str, float] = field(default_factory=dict)
    """Sampling of a request without parameters of its own; {} for an encoder."""
    digest: str = ""
    """sha256 in hex over the hashes of the artifact's files."""
    image_size: ImageSize | None = None
    """The largest image that gains a model anything; None = it reads no images."""
    hears: bool = False
    """Whether prompts may have sound."""

    @property
    def sees(self) -> bool:
        """Whether prompts may have images."""
        return self.image_size is not None

    @cached_property
    def fingerprint(self) -> str:
        """OpenAI's `system_fingerprint`; "" without a digest."""
        return self.digest and f"fp_{self.digest[:12]}"


def _permission(name: str, created: int) -> ModelPermission:
    return {
        "id": f"modelperm-{name}",
        "object": "model_permission",
        "created": created,
        "allow_create_engine": False,
        "allow_sampling": True,
        "allow_logprobs": True,
        "allow_search_indices": False,
        "allow_view": True,
        "allow_fine_tuning": False,
        "organization": "*",
        "group": None,
        "is_blocking": False,
    }


def model(
    name: str,
    created: int,
    *,
    state: ModelState,
    context: int,
    aliases: Sequence[str] = (),
    memory_bytes: int | None = None,
    requests: int = 0,
    parent: str | None = None,
    progress: float | None = None,
    sampling: Mapping[str, float] | None = None,
    image_size: ImageSize | None = None,
    hears: bool = False,
) -> Model:
    """One entry of /v1/models."""
    made: Model = {
        "id": name,
        "object": "model",
        "created": created,
        "owned_by": "mlcc",
        "state": state,
        "context_length": context,
        "aliases": list(aliases),
        "memory_bytes": memory_bytes,
        "requests": requests,
        "max_model_len": context,
        "parent": parent,
        "root": parent or name,
        "permission": [_permission(name, created)],
        "progress": progress,
        "default_sampling": dict(sampling or {}),
    }
    if image_size is not None:
        made["input_modalities"] = ["text", "image"]
        made["image_size"] = image_size
    if hears:
        made["input_modalities"] = [*made.get("input_modalities", ["text"]), "audio"]
    return made
