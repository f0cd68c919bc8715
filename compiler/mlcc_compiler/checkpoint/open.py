"""Opens any kind of checkpoint that MODEL may name."""

from __future__ import annotations

from pathlib import Path

from mlcc_compiler.checkpoint.folder import Checkpoint
from mlcc_compiler.checkpoint.gguf.checkpoint import GgufCheckpoint
from mlcc_compiler.checkpoint.gguf.files import is_gguf, select_model


def open_checkpoint(path: Path) -> Checkpoint:
    """A Hugging Face folder, a GGUF file, or a folder of GGUF files. Raises CheckpointError."""
    return GgufCheckpoint.open(select_model(path)) if is_gguf(path) else Checkpoint.open(path)
