"""Metadata of a model, for routes that describe it (Ollama's /api/show, llama.cpp's /props, the
entries of /v1/models). Data alone; `mlcc.model` fills it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from mlcc.util.fast_dataclass import fast_dataclass


@fast_dataclass(frozen=True)
class ModelInfo:
    """Of an artifact; the defaults are of a model that comes from none."""

    architecture: str = "unknown"
    """The checkpoint's `model_type`: llama, qwen2, ..."""
    quantization: str = "unknown"
    device: str = "cpu"
    """What it was compiled for: cpu, cuda, metal, vulkan, webgpu."""
    config: Mapping[str, Any] = field(default_factory=dict)
    """The numbers of the architecture, as the manifest has them."""
    vocab_size: int = 0
    weights_bytes: int = 0
    """Of the weights as they lie in the artifact."""
    device_bytes: int = 0
    """What weights, caches and scratch take on the device, as planned."""
    digest: str = ""
    """sha256 in hex of what the artifact's files hash to: the same for the same artifact."""

    @property
    def fingerprint(self) -> str:
        """OpenAI's `system_fingerprint`; "" without a digest."""
        return self.digest and f"fp_{self.digest[:12]}"
