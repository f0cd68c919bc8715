"""Installs the emulated device below TVM's CUDA runtime before any test compiles for CUDA.

At collection, because the runtime can be loaded over one driver only.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from benchmarks.gpu import count
from mlcc.loader import open_model
from mlcc.model.model import Model
from mlcc_compiler.checkpoint.folder import Checkpoint
from mlcc_compiler.compile import Progress, compile_model
from mlcc_compiler.options import Options
from mlcc_targets import get_target
from tests.helpers import needs, shared
from tests.targets.cuda import emulation

if not emulation.why_not():
    emulation.device()

DEMO = Path(__file__).parents[3] / "examples" / "demo" / "model"


@pytest.fixture(scope="session")
def emulated() -> None:
    """Require the emulated device."""
    if reason := emulation.why_not():
        needs.absent(reason)


@pytest.fixture(scope="session")
def nvcc() -> None:
    """Require NVIDIA's compiler, and the host compiler that it needs."""
    needs.require_target("cuda")


@pytest.fixture(scope="session")
def disassembler(nvcc: None) -> None:
    """Require what counts of machine code need."""
    for name in ("cuobjdump", "nvdisasm"):
        try:
            count.tool(name)
        except SystemExit as error:
            needs.absent(str(error))


@pytest.fixture(scope="session")
def demo_models(emulated: None) -> dict[str, Model]:
    """The demo model, one recipe: on the emulated GPU with and without graphs, and in numpy."""
    folder, checkpoint = shared.folder("cuda-demo"), Checkpoint.open(DEMO)
    options = Options(quant="q4", context=256, max_batch=4, max_step_tokens=32)
    with pytest.MonkeyPatch.context() as patch, FileLock(folder / "lock"):
        emulation.replace_nvcc(patch)
        for name in ("cuda", "reference"):
            if not (folder / name).is_dir():
                compile_model(checkpoint, get_target(name), folder / name, options, Progress())
    models = {name: open_model(folder / name) for name in ("cuda", "reference")}
    models["eager"] = open_model(folder / "cuda")
    eager: Any = models["eager"].executor
    eager._graphs = None
    return models
