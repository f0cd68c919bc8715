"""Two libraries of one model in one folder: float16, and float32 for browsers without float16."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from mlcc.artifact.folder import Artifact
from mlcc.artifact.manifest import Manifest
from mlcc.artifact.schema import MANIFEST_NAME
from mlcc.errors import UnsupportedError
from mlcc_compiler.checkpoint.folder import Checkpoint
from mlcc_compiler.cli import compile_command
from mlcc_compiler.compile import Progress, compile_model
from mlcc_compiler.options import Options
from mlcc_targets import Choices, Target, get_target
from tests.runtime.commands.tiny_checkpoint import write_checkpoint

OTHER = "mlcc.f32.json"
WEIGHTS = "weights-00001-of-00001.safetensors"


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("tiny") / "model")


@pytest.fixture(scope="module")
def compiled_output(
    checkpoint: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, list[str]]:
    """The output of the command, with dumped phases in `ir`, and its printed lines."""
    out = tmp_path_factory.mktemp("both") / "out"
    options = ["--context", "64", "-o", str(out), "--dump-ir", str(out.with_name("ir"))]
    arguments = [str(checkpoint), "--target", "webgpu", *options]
    done = CliRunner().invoke(compile_command, arguments, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return out, done.output.splitlines()


@pytest.fixture(scope="module")
def both(compiled_output: tuple[Path, list[str]]) -> Path:
    return compiled_output[0]


def compiled(checkpoint: Path, target: Target, out: Path, **more: Any) -> Path:
    options = Options(context=64, **more)
    return compile_model(Checkpoint.open(checkpoint), target, out, options, Progress())


def read(folder: Path, name: str = MANIFEST_NAME) -> Manifest:
    return Manifest.from_bytes((folder / name).read_bytes())


@pytest.mark.feature("f16-kv", "webgpu", "compiles")
def test_float16_comes_first_and_float32_reads_the_same_weights(both: Path) -> None:
    primary = Artifact.open(both, host=False).manifest  # hashes every file
    assert primary.alternatives == (OTHER,)
    other = read(both, OTHER)
    assert (primary.target.options["f16"], other.target.options["f16"]) == (True, False)
    assert {t.dtype for c in primary.caches for t in c.tensors} == {"float16"}
    assert {t.dtype for c in other.caches for t in c.tensors} == {"float32"}
    assert other.memory.cache_bytes == 2 * primary.memory.cache_bytes
    assert other.weights == primary.weights and primary.weights.shards == (WEIGHTS,)
    assert len(list(both.glob("*.safetensors"))) == 1


def test_each_is_what_a_compile_of_it_alone_makes(
    both: Path, checkpoint: Path, tmp_path: Path
) -> None:
    for f16, library in ((True, "model.wasm"), (False, "model.f32.wasm")):
        row = get_target("webgpu", Choices(f16=f16))
        alone = compiled(checkpoint, row, tmp_path / library)
        assert read(alone).alternatives == () and len(list(alone.glob("*.wasm"))) == 1
        for one, other in (("model.wasm", library), (WEIGHTS, WEIGHTS)):
            assert (alone / one).read_bytes() == (both / other).read_bytes()


def test_weights_are_shared_with_other_gpus(both: Path, checkpoint: Path, tmp_path: Path) -> None:
    vulkan = compiled(checkpoint, get_target("vulkan"), tmp_path / "vulkan", reuse_weights=both)
    assert (vulkan / WEIGHTS).samefile(both / WEIGHTS)
    web = compiled(checkpoint, get_target("webgpu"), tmp_path / "web", reuse_weights=vulkan)
    assert (web / WEIGHTS).samefile(both / WEIGHTS)
    for path in both.iterdir():  # so all of it is reproducible, too
        assert (web / path.name).read_bytes() == path.read_bytes(), path.name


def test_phases_of_both_are_dumped_apart(both: Path) -> None:
    first, second = both.with_name("ir"), both.with_name("ir") / "f32"
    names = {path.name for path in first.glob("*.py")}
    assert names == {path.name for path in second.iterdir()} and len(names) > 5


def test_the_command_says_what_it_makes_and_how_to_open_it(
    compiled_output: tuple[Path, list[str]],
) -> None:
    out, lines = compiled_output
    assert "beside it:    model.f32.wasm (webgpu kernels in float32)" in lines
    assert lines[-1] == f"open it in a browser: mlcc serve {out}"


def test_libraries_that_would_read_other_weights_are_refused(
    checkpoint: Path, tmp_path: Path
) -> None:
    row = get_target("webgpu")
    (other,) = row.alternatives
    tight = replace(other, limits={**other.limits, "storage_binding_bytes": 16384})
    with pytest.raises(UnsupportedError, match=r"would read different weights; .*--no-f16"):
        row = replace(row, alternatives=(tight,))
        compiled(checkpoint, row, tmp_path / "out", max_batch=1, max_step_tokens=16)
    assert not (tmp_path / "out").exists()
