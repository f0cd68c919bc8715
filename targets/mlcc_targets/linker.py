"""Running the one linker that every library is made with, so that equal inputs are equal bytes.

It is zig's (LLVM's lld, and its own for Mach-O), a wheel of PyPI and pinned by the extra `compile`.
A system's own tools are not asked, even where there are some: their versions write other bytes.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from mlcc_targets.target import TargetError

PACKAGE = "ziglang==0.17.1"
"""As the extra `compile` pins it."""


def zig() -> str:
    """The program. Raises TargetError if its package is not installed."""
    spec = importlib.util.find_spec("ziglang")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        for path in sorted(Path(folder).glob("zig*")):
            if path.name in ("zig", "zig.exe"):
                return str(path)
    raise TargetError(f"the linker is not installed; pip install {PACKAGE}")


def run(command: Sequence[str], output: Path, environment: Mapping[str, str] | None = None) -> str:
    """Run what writes `output`; returns what it says. Raises TargetError with its first error.

    environment: the whole of it, if not this process's.
    """
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["no message"]
        reason = next((line for line in lines if "error: " in line), lines[-1])
        raise TargetError(f"making {output.name} failed: {reason}")
    return done.stderr


def run_zig(words: Sequence[str], output: Path, cache: Path | None = None) -> str:
    """Run a command of zig's that writes `output`; what it says. Raises TargetError.

    cache: where it keeps what it compiled; None if it has nothing to keep.
    """
    with tempfile.TemporaryDirectory() as folder:
        kept = str(cache or folder)
        places = {"ZIG_GLOBAL_CACHE_DIR": kept, "ZIG_LOCAL_CACHE_DIR": kept}
        return run([zig(), *words], output, {**os.environ, **places})
