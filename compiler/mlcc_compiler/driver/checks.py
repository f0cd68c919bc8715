"""Checks a checkpoint's small files before any work: a refusal comes first, not after minutes."""

from __future__ import annotations

from collections.abc import Iterable

from mlcc.errors import CheckpointError
from mlcc_compiler.artifact.package import template_path
from mlcc_compiler.checkpoint.folder import Checkpoint


def check_ready(checkpoint: Checkpoint, vocab_size: int, tensors: Iterable[str]) -> None:
    """Check tokenizer, end-of-sequence ids, chat templates, dtypes of `tensors`. Raises
    MlccError."""
    checkpoint.tensors.check_dtypes(tensors)
    _ = checkpoint.tokenizer, checkpoint.licence  # refused here if they cannot be read
    checkpoint.check_tokenizer()
    for name in checkpoint.chat_templates:
        template_path(name)
    for token in checkpoint.eos_token_ids:
        if token >= vocab_size:
            raise CheckpointError(
                f"{checkpoint.folder}: end-of-sequence id {token} is outside the vocabulary of "
                f"{vocab_size}; fetch generation_config.json and config.json again"
            )
