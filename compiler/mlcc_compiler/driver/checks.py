"""Early checks, so that minutes of work do not end in a refusal: whether this machine can compile
for a target, and whether the checkpoint's small files are usable.
"""

from __future__ import annotations

from collections.abc import Iterable

from mlcc.errors import CheckpointError
from mlcc.util.extras import lacking
from mlcc_compiler.artifact.package import template_path
from mlcc_compiler.checkpoint.folder import Checkpoint
from mlcc_compiler.cuda import code as cuda_code
from mlcc_targets import Target, TargetError
from mlcc_targets.linker import zig


def missing(target: Target) -> str:
    """What the machine lacks for a target and the command that installs it; empty = nothing."""
    if target.missing:
        return target.missing
    if extra := lacking("compile"):
        return f'compiling needs more than is installed; type `pip install "mlcc[{extra}]"`'
    try:
        if target.kernels:  # else there is nothing to link
            zig()
    except TargetError as error:
        return str(error)
    if target.generator == "cuda":
        return cuda_code.missing(target.archs)
    return ""


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
