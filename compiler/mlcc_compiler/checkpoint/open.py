"""Opens what MODEL names, whichever kind of checkpoint it is."""

from __future__ import annotations

from pathlib import Path

from mlcc_compiler.checkpoint.folder import Checkpoint
from mlcc_compiler.checkpoint.gguf.checkpoint import GgufCheckpoint
from mlcc_compiler.checkpoint.gguf.files import chosen, is_gguf


def open_checkpoint(path: Path) -> Checkpoint:
    """A Hugging Face folder, a GGUF file, or a folder of GGUF files. Raises CheckpointError."""
    return GgufCheckpoint.open(chosen(path)) if is_gguf(path) else Checkpoint.open(path)
