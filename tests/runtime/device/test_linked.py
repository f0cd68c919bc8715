"""A model linked into a program (model.a): equal tokens, with no library loaded."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from mlcc.artifact.folder import Artifact
from mlcc.device.compiled.executor import CompiledExecutor
from mlcc.engine.scheduler.manual_steps import ManualSteps
from mlcc.engine_args import EngineArgs
from mlcc.errors import ArtifactError, UnsupportedError
from mlcc.loader import compiled_model, open_model
from mlcc.util import executor_library
from mlcc_compiler.checkpoint.folder import Checkpoint
from mlcc_compiler.compile import Progress, compile_model
from mlcc_compiler.options import Options
from mlcc_targets import get_target
from tests.helpers.demo_model import DEMO
from tests.runtime.device.conftest import NATIVE
from tests.runtime.device.helpers.demo import capacity_of
from tests.runtime.device.helpers.records import source
from tests.runtime.device.test_c_program import LIMITS, TOKENS, expected

HERE = Path(__file__).parent
PREFIX = "mlcc_demo_q4_"


@pytest.fixture(scope="session")
def linkable(built: None, tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    """The demo model, q4, with its static library."""
    out = tmp_path_factory.mktemp("linkable") / "demo"
    options = Options(quant="q4", context=1024, static_library=True)
    row = get_target("cpu")
    compile_model(Checkpoint.open(DEMO / "model"), row, out, options, Progress())
    return Artifact.open(out)


def linked(made: Path, artifact: Artifact, *words: str) -> Path:
    """A program or library, with the model and the executor."""
    executor = executor_library.LIBRARY
    command = ["g++", "-x", "c++", "-Wall", f"-I{NATIVE / 'include'}", f"-I{artifact.folder}"]
    command += [*words, "-x", "none", str(artifact.folder / "model.a"), str(executor)]
    command += [f"-Wl,-rpath,{executor.parent}", "-o", str(made)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return made


def test_its_tokens_are_those_of_the_library(linkable: Artifact, tmp_path: Path) -> None:
    capacity = capacity_of(linkable.folder, **LIMITS)
    steps = ManualSteps(capacity)
    batches = [steps.step({0: range(5, 30)})]
    batches += [steps.step({0: [-1]}) for _ in range(TOKENS - 1)]
    records = tmp_path / "records.h"
    text = f'#include "mlcc_model.h"\n{source(linkable, capacity, batches)}'
    which = f", library[0] ? library : {PREFIX}link(), "
    records.write_text(text.replace(", library, ", which), encoding="utf-8")
    made = linked(
        tmp_path / "greedy", linkable, f'-DRECORDS="{records}"', str(HERE / "helpers" / "greedy.c")
    )
    weights = linkable.folder / linkable.manifest.weights.shards[0]

    def says(library: str) -> str:
        command = [str(made), library, str(weights), str(TOKENS)]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    assert says("") == expected(linkable.folder)
    assert says("linked:mlcc_other_").startswith("status 2: this program has not linked the model")


def test_the_manifest_names_it(linkable: Artifact) -> None:
    options = linkable.manifest.target.options
    assert (options["static_library"], options["linked_prefix"]) == ("model.a", PREFIX)
    assert {"model.a", "mlcc_model.h", "model.so"} < {f.path for f in linkable.manifest.files}


SERVES = """
import ctypes, sys
from pathlib import Path
from tests.runtime.device.test_c_program import LIMITS, TOKENS
from mlcc.engine.scheduler.manual_steps import ManualSteps
from mlcc.engine_args import EngineArgs
from mlcc.loader import open_model

app = ctypes.CDLL(sys.argv[2])
executor = open_model(Path(sys.argv[1]), EngineArgs(threads=2, max_batch=1, context=128)).executor
assert str(executor._path).startswith("linked:"), executor._path
steps, tokens, found = ManualSteps(executor.capacity), list(range(5, 30)), []
for _ in range(TOKENS):
    found += executor.collect(executor.submit(steps.step({0: tokens}))).tokens
    tokens = [-1]
print(*found, "")
"""


def test_opening_the_folder_uses_the_linked_model(linkable: Artifact, tmp_path: Path) -> None:
    source = tmp_path / "app.c"
    name = f'#include "mlcc_model.h"\nconst char *name(void) {{ return {PREFIX}link(); }}\n'
    source.write_text(name, encoding="utf-8")
    app = linked(tmp_path / "app.so", linkable, "-shared", "-fPIC", str(source))
    command = [sys.executable, "-c", SERVES, str(linkable.folder), str(app)]
    path = {"PYTHONPATH": os.pathsep.join([str(HERE.parents[2]), *sys.path])}
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, **path}
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == expected(linkable.folder)


def test_what_is_not_linked_is_loaded(linkable: Artifact) -> None:
    assert not executor_library.load().linked(PREFIX)
    model = open_model(linkable.folder, EngineArgs(threads=1))
    assert isinstance(model.executor, CompiledExecutor)
    assert model.executor._path == linkable.library_path
    model.executor.close()


def test_a_static_library_must_be_linked(linkable: Artifact) -> None:
    """The library of a folder for iOS, in a program that did not link it."""
    model = replace(compiled_model(linkable), library=linkable.folder / "model.a")
    with pytest.raises(ArtifactError, match=rf"call {PREFIX}link\(\) of mlcc_model.h at the start"):
        CompiledExecutor(model, capacity_of(linkable.folder, **LIMITS))


def test_a_target_without_one_refuses(tmp_path: Path) -> None:
    options = Options(static_library=True)
    row = get_target("reference")
    with pytest.raises(UnsupportedError, match="leave out --static-library"):
        compile_model(Checkpoint.open(DEMO / "model"), row, tmp_path / "out", options, Progress())
