"""One folder for every CPU of an architecture: libraries of levels, one set of weights."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import mlcc.artifact.checks.host_check
from mlcc.artifact.folder import Artifact
from mlcc.engine.scheduler.manual_steps import ManualSteps
from mlcc.errors import ArtifactError, UnsupportedError
from mlcc.util.machine import machine
from mlcc_compiler.checkpoint.folder import Checkpoint
from mlcc_compiler.cli import compile_command
from mlcc_compiler.compile import Progress, compile_model
from mlcc_compiler.kernels.cpu.kernel_set import kernels_of
from mlcc_compiler.options import Options
from mlcc_compiler.quantization.schemes import SCHEMES
from mlcc_targets import Choices, Target, get_target
from mlcc_targets.cpu import ANY, LEVELS, host_level, level
from tests.runtime.commands.tiny_checkpoint import write_checkpoint
from tests.runtime.device.helpers.demo import cpu_executor

NAMES = {"x86_64": "any-x86-64", "aarch64": "any-arm"}
BASE = {"x86_64": "x86-64", "aarch64": "arm"}


def row_of(arch: str) -> Target:
    return get_target("cpu", Choices(cpu=NAMES[arch]))


@pytest.mark.parametrize("arch", ANY)
def test_the_best_level_comes_first_and_the_last_runs_everywhere(arch: str) -> None:
    row = row_of(arch)
    rows = (row, *row.alternatives)
    assert [each.library for each in rows] == [f"model.{name}.so" for name in ANY[arch]]
    order = [LEVELS.index(level(name)) for name in ANY[arch]]
    assert order == sorted(order) and LEVELS[order[-1]].name == BASE[arch]
    needs = [set(each.features) - {"neon"} for each in rows]
    assert all(a - b for a, b in pairwise(needs)) and not needs[-1]
    if arch == machine():
        here = get_target("cpu", Choices(cpu="any"))
        assert [each.library for each in here.alternatives] == [r.library for r in rows[1:]]


@pytest.mark.parametrize("arch", ["aarch64", "both"])
@pytest.mark.parametrize("use", ["matrix", "table", "experts"])
def test_all_levels_read_the_same_bytes(arch: str, use: str) -> None:
    """All levels, also those that `any` omits: weights of one compile serve another. Those of both
    architectures read the bytes that x86-64's read alone."""
    names = [each.name for each in LEVELS if arch in (each.arch, "both")]
    row = get_target("cpu", Choices(cpu=",".join(names), systems=("linux",)))
    shape = (2, 40, 128) if use == "experts" else (40, 128)
    weight = np.random.default_rng(5).standard_normal(shape).astype(np.float32)
    sets = [kernels_of(each) for each in (row, *row.alternatives)]
    assert len(sets) == len(names)
    for name in sorted(SCHEMES):
        layouts = [each.layouts[use](each.device, shape, name) for each in sets]
        first, *others = ([a.tobytes() for a in layout.pack(weight)] for layout in layouts)
        assert all(other == first for other in others), name


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Libraries of this machine's level and of the lowest; the levels between take longer and are
    part of `any`."""
    folder = tmp_path_factory.mktemp("any")
    row = row_of(machine())
    others = {"avx512-bf16": "avx512-vnni", "avx512-vbmi": "avx512-vnni", "avx512": "avx2"}
    mine = others.get(name := host_level().name, name)
    best = next(each for each in (row, *row.alternatives) if each.variant == mine)
    row = replace(best, alternatives=row.alternatives[-1:])
    checkpoint = Checkpoint.open(write_checkpoint(folder / "model"))
    return compile_model(checkpoint, row, folder / "out", Options(context=64), Progress())


def logits(folder: Path) -> np.ndarray:
    """Logits of a prompt and of a step after it, by the library chosen on this machine."""
    executor = cpu_executor(folder)
    steps = ManualSteps(executor.capacity)
    found = [np.array(executor.logits(steps.step({0: range(3, 23)})))]
    found.append(np.array(executor.logits(steps.step({0: [40]}))))
    executor.close()
    return np.concatenate(found)


def test_the_lowest_level_has_little_more_code(both: Path) -> None:
    """Compiles take time in proportion to code. It has 1.3 times as much as AVX-512's level; with
    lookups for each register tile 1.9 times."""
    best, least = Artifact.open(both).library_path, both / f"model.{BASE[machine()]}.so"
    assert best != least
    assert least.stat().st_size < 1.65 * best.stat().st_size


def without_features(patch: pytest.MonkeyPatch) -> None:
    """A machine with only the common features of its architecture."""
    patch.setattr(
        mlcc.artifact.checks.host_check, "cpu_features", lambda: frozenset({"sse2", "asimd"})
    )


def test_each_machine_takes_the_best_that_runs_there(
    both: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    best = Artifact.open(both)
    assert best.library_path.name != f"model.{BASE[machine()]}.so"
    fast = logits(both)
    without_features(monkeypatch)
    least = Artifact.open(both)
    assert least.library_path.name == f"model.{BASE[machine()]}.so"
    assert least.weights() == best.weights()
    slow = logits(both)
    assert np.abs(fast - slow).max() < 1e-4 * np.abs(fast).max()
    assert np.argmax(fast, -1).tolist() == np.argmax(slow, -1).tolist()


def test_a_machine_that_lacks_the_features_of_all_libraries_is_refused(
    both: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = compile_model(
        Checkpoint.open(both.parent / "model"),
        get_target("cpu"),
        tmp_path / "one",
        Options(context=64, reuse_weights=both),
        Progress(),
    )
    shards = Artifact.open(both, host=False).manifest.weights.shards
    assert all((one / shard).samefile(both / shard) for shard in shards)
    without_features(monkeypatch)
    with pytest.raises(ArtifactError, match=r"needs a CPU with .*; .*--cpu any"):
        Artifact.open(one)


def test_a_program_links_one_level(tmp_path: Path) -> None:
    checkpoint = Checkpoint.open(write_checkpoint(tmp_path / "model"))
    options = Options(context=64, static_library=True)
    with pytest.raises(UnsupportedError, match="a program links one library"):
        compile_model(checkpoint, row_of("x86_64"), tmp_path / "out", options, Progress())


def test_any_is_the_default_of_the_command() -> None:
    (option,) = [p for p in compile_command.params if p.name == "cpu"]
    assert option.show_default == "any"


@pytest.mark.long  # four libraries
def test_the_command_makes_a_library_of_each_level(tmp_path: Path) -> None:
    from click.testing import CliRunner

    checkpoint = write_checkpoint(tmp_path / "model")
    arguments = [str(checkpoint), "--context", "64", "-o", str(tmp_path / "out")]
    done = CliRunner().invoke(compile_command, arguments, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    names = {path.name for path in (tmp_path / "out").glob("model.*.so")}
    assert names == {f"model.{name}.so" for name in ANY[machine()]}
    logits(tmp_path / "out")
