"""The demo model, compiled once per run of the tests for all processes of the run."""

from __future__ import annotations

from pathlib import Path

from filelock import FileLock

from mlcc_compiler.checkpoint.folder import Checkpoint
from mlcc_compiler.compile import Progress, compile_model
from mlcc_compiler.options import Options
from mlcc_targets import Choices, get_target
from tests.helpers import needs, shared

DEMO = Path(__file__).parents[2] / "examples" / "demo"
CONTEXT = 1024


def compiled(folder: Path, quant: str, target: str) -> Path:
    """The artifact for a recipe and a target; "vulkan-f32" is vulkan with --no-f16. folder: shared
    by the processes of the run. Skips a test whose target cannot be compiled here."""
    name, _, f32 = target.partition("-")
    needs.require_target(name)
    row = get_target(name, Choices(f16=False if f32 else None))
    out = folder / f"{quant}-{target}"
    with FileLock(folder / f"{out.name}.lock"):
        if not out.is_dir():
            options = Options(quant=quant, context=CONTEXT)
            compile_model(Checkpoint.open(DEMO / "model"), row, out, options, Progress())
    return out


def for_all_desktops() -> Path:
    """One artifact for Linux, Windows and macOS, x86-64 and Arm: 17 libraries, one set of
    weights."""
    systems = ("linux", "windows", "macos")
    row = get_target("cpu", Choices(cpu="any-x86-64,any-arm", systems=systems))
    folder = shared.folder("desktops")
    out = folder / "für alle Geräte"
    with FileLock(folder / "lock"):
        if not out.is_dir():
            options = Options(quant="q4", context=256)
            compile_model(Checkpoint.open(DEMO / "model"), row, out, options, Progress())
    return out
