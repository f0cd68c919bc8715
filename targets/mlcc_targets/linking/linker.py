"""Runs the one linker of all targets, so that equal inputs give equal bytes.

It is zig's (LLVM's lld, and its own for Mach-O), from PyPI, pinned by the extra `compile`. Tools of
the system are never used, because other versions write other bytes.
"""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from mlcc_targets.target import TargetError

PACKAGE = "ziglang==0.17.1"
"""The version that the extra `compile` pins."""

_DISK_SIGNALS = {-number for name in ("SIGBUS", "SIGXFSZ") if (number := getattr(signal, name, 0))}
_DISK_WORDS = ("No space left", "NoSpaceLeft", "File too large", "FileTooBig", "DiskQuota")


def zig() -> str:
    """The path of zig. Raises TargetError if its package is not installed."""
    spec = importlib.util.find_spec("ziglang")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        for path in sorted(Path(folder).glob("zig*")):
            if path.name in ("zig", "zig.exe"):
                return str(path)
    raise TargetError(f"the linker is not installed; pip install {PACKAGE}")


def run(command: Sequence[str], output: Path, environment: Mapping[str, str] | None = None) -> str:
    """Run a command that writes `output`; return its messages. Raises TargetError with its first
    error.

    environment: the whole environment; None = this process's.
    """
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        raise TargetError(f"making {output.name} failed: {_reason(done)}")
    return done.stderr


def _reason(done: subprocess.CompletedProcess[str]) -> str:
    """Why a command failed. The linker writes into mapped memory: at a full disk a signal ends it,
    without a word."""
    lines = done.stderr.strip().splitlines()
    if done.returncode in _DISK_SIGNALS or any(word in done.stderr for word in _DISK_WORDS):
        return (
            "the disk is full, or `ulimit -f` allows no file so large; free some space, or choose "
            "another --output or TMPDIR"
        )
    ended = f"it ended with code {done.returncode} and no message"
    return next((line for line in lines if "error: " in line), lines[-1] if lines else ended)


def run_zig(words: Sequence[str], output: Path, cache: Path | None = None) -> str:
    """Run a zig command that writes `output`; return its messages. Raises TargetError.

    cache: the folder of its cache; None if it caches nothing.
    """
    with tempfile.TemporaryDirectory() as folder:
        kept = str(cache or folder)
        places = {"ZIG_GLOBAL_CACHE_DIR": kept, "ZIG_LOCAL_CACHE_DIR": kept}
        return run([zig(), *words], output, {**os.environ, **places})
