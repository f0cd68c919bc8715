"""A compiled model as executors open it: its library, and where its weights are.

Not an artifact: `mlcc.loader` makes one of an artifact's manifest.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

from mlcc.artifact.safetensors import TensorEntry
from mlcc.artifact.schema import AdaptersInfo, CacheInfo, EmbeddingsInfo
from mlcc.util.fast_dataclass import fast_dataclass


@fast_dataclass(frozen=True)
class CompiledModel:
    """The parts of a compiled model that executors open; of one rank, if the model is split."""

    library: Path
    weights: Sequence[TensorEntry]
    """Locations in files, in the order of the manifest."""
    caches: Sequence[CacheInfo]
    functions: Collection[str]
    """Exported by the library, as the manifest lists them."""
    interface: str | None = None
    """The manifest's, which must be the library's own; None = not checked."""
    adapters: AdaptersInfo | None = None
    """None = compiled without LoRA slots."""
    linked: str = ""
    """Prefix of the model's static library, used if it is linked into the program."""
    embeddings: EmbeddingsInfo | None = None
    """None = a step has tokens only."""
    streamed: bool = False
    """Whether experts are offloaded: steps read the chosen ones from their file."""
