"""Resolves the MODEL of a command line or of `Engine` to a compiled model's folder."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from mlcc.engine_args import EngineArgs
from mlcc.errors import printable
from mlcc.model_argument import full_name
from mlcc.model_cache.cache import (
    TARGET,
    CompileOptions,
    check_exists,
    check_head_unused,
    compiled,
    is_compiled,
)
from mlcc.model_cache.store import kept


def print_note(text: str) -> None:
    """Print a line for the user on the standard error."""
    print(f"note: {printable(text)}", file=sys.stderr)


def resolve(
    args: EngineArgs, *, runs_here: bool = True, note: Callable[[str], None] = print_note
) -> Path:
    """The compiled model's folder. A checkpoint is compiled first, for a device of this machine if
    it `runs_here`; a name of `mlcc list` is a model that was compiled before. `note` gets lines for
    the user. Raises ArtifactError, CheckpointError, DeviceError.
    """
    args = replace(args, model=full_name(args.model))
    head = args.draft_head
    if (found := kept(args.model, args.target, args.quant)) is not None:
        check_head_unused(args.model, head)
        return found
    ready = is_compiled(args.model) or not runs_here
    options = CompileOptions(
        args.target,
        args.quant,
        args.context,
        args.max_batch,
        args.max_step_tokens,
        args.max_rows,
        kv=args.kv,
        mtp=head is None and (args.speculate or "").partition(":")[0] == "mtp",
        draft_head=head,
        device=() if ready else _device_choices(args),
    )
    path = compiled(args.model, options, note)
    if runs_here and ready:
        _note_foreign(path, note)
    return path


def check_model(args: EngineArgs) -> None:
    """Raises CheckpointError if there is no such model, before time is spent on it."""
    model = full_name(args.model)
    if kept(model, args.target, args.quant) is None:
        check_exists(model)


def _device_choices(args: EngineArgs) -> tuple[str, ...]:
    """Compiler options that the device asks for. Raises DeviceError if there is no device."""
    from mlcc.device.select import compile_flags
    from mlcc.device.threads import set_threads

    set_threads(args.threads)
    return compile_flags(args.target or TARGET, args.device)


def _note_foreign(path: Path, note: Callable[[str], None]) -> None:
    """Note once that the model's machine code was compiled elsewhere, before it is loaded. Raises
    ArtifactError for a model that cannot run here."""
    from mlcc.artifact.checks.trust import is_trusted, trust

    if not is_trusted(path):
        from mlcc.artifact.folder import Artifact

        Artifact.open(path, verify=False)
        note(f"{path} was not compiled here by you; its machine code runs with your rights")
        trust(path)
