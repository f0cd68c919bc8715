"""Opens any kind of checkpoint that MODEL may name."""

from __future__ import annotations

from pathlib import Path

from mlcc.errors import UnsupportedError
from mlcc_compiler.checkpoint.folder import Checkpoint
from mlcc_compiler.checkpoint.gguf.checkpoint import GgufCheckpoint
from mlcc_compiler.checkpoint.gguf.files import is_gguf, select_model


def open_checkpoint(path: Path, mmproj: Path | None = None) -> Checkpoint:
    """A Hugging Face folder, a GGUF file, or a folder of GGUF files. mmproj: the GGUF file of the
    model's vision tower. Raises CheckpointError, UnsupportedError."""
    if is_gguf(path):
        return GgufCheckpoint.open(select_model(path), mmproj)
    if mmproj is not None:
        raise UnsupportedError(
            f"--mmproj {mmproj}: is for GGUF models; the folder {path} has its own vision tower, "
            "leave --mmproj out"
        )
    return Checkpoint.open(path)
