"""A model on two GPUs, with emulated devices and a replacement for NCCL: answers equal those of one
process; and ranks that end."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from threading import Timer
from typing import Any

import pytest

from mlcc import loader
from mlcc.artifact.folder import Artifact
from mlcc.device.device import DeviceHandle
from mlcc.device.parallel import rank_processes
from mlcc.device.parallel.experimental import nccl
from mlcc.errors import ArtifactError, DeviceLostError
from mlcc.loader import open_model
from mlcc.model.model import Model
from mlcc_compiler.checkpoint.folder import Checkpoint
from mlcc_compiler.compile import Progress, compile_model
from mlcc_compiler.options import Options
from mlcc_targets import Choices, cuda_files, get_target
from tests.e2e.demo.equality import compare, greedy_tokens
from tests.runtime.commands.tiny_checkpoint import write_checkpoint
from tests.targets.cuda import emulation
from tests.targets.cuda.fat_binary import entries

pytestmark = pytest.mark.usefixtures("emulated")
PROMPTS = ("3 + 4 =", "What is the capital of France?", "Count: one two three", "x")
BOUND = 0.05
"""Bound of the error of logits of order one, with float16 pages."""


@pytest.fixture(scope="module")
def stand_in(emulated: None) -> Iterator[None]:
    """NCCL, and the ranks' processes, for devices that are emulated."""
    library = emulation.folder() / "libnccl.so.2"
    source = Path(emulation.__file__).with_name("nccl.cc")
    flags = ["-O2", "-shared", "-fPIC", "-std=c++17"]
    subprocess.run(["g++", *flags, "-o", str(library), str(source)], check=True)
    real = loader.device_handle

    def device_handle(target: Any, wanted: int | None) -> DeviceHandle:
        return real(target, 0)  # each process has one

    path = str(Path(__file__).parents[3])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", path)
        patch.setenv("MLCC_STAND_IN_NCCL", str(library))
        patch.setattr(cuda_files, "nccl", lambda: str(library))
        patch.setattr(rank_processes, "MODULE", "tests.targets.cuda.emulation.follower")
        patch.setattr(loader, "device_handle", device_handle)
        nccl.load.cache_clear()
        yield
    nccl.load.cache_clear()


@pytest.fixture(scope="module")
def folders(tmp_path_factory: Any, emulated: None) -> dict[str, Path]:
    """Artifacts of one model: for numpy, and for two GPUs."""
    folder = tmp_path_factory.mktemp("gpu-ranks")
    checkpoint = Checkpoint.open(write_checkpoint(folder / "model"))
    common = {"quant": "q8", "context": 128, "max_batch": 4, "max_step_tokens": 32}
    with pytest.MonkeyPatch.context() as patch:
        emulation.replace_nvcc(patch)
        for name, ranks in (("reference", 1), ("cuda", 2)):
            options = Options(**common, ranks=ranks)
            compile_model(checkpoint, get_target(name), folder / name, options, Progress())
    return {name: folder / name for name in ("reference", "cuda")}


@pytest.fixture
def model(stand_in: None, folders: dict[str, Path]) -> Iterator[Model]:
    opened = open_model(folders["cuda"])
    yield opened
    opened.close()


def test_answers_are_those_of_one_process(model: Model, folders: dict[str, Path]) -> None:
    """Prompts of several steps, four sequences at once: gatherings of several rows."""
    reference = open_model(folders["reference"])
    prompts = [model.text.encode_prompt(prompt * 2) for prompt in PROMPTS]
    answers, expected = (greedy_tokens(each, prompts, 12) for each in (model, reference))
    assert all(len(answer) > 4 for answer in answers)
    ties = sum(
        compare(reference, *row, BOUND) for row in zip(prompts, answers, expected, strict=True)
    )
    assert ties <= 1
    assert sum(model.executor.page_bytes) * 2 == 2 * 2 * 2 * 16 * 2 * 16  # half of the heads


@pytest.mark.feature("ranks", "cuda", "compiles")
def test_a_library_for_gpus_that_are_not_here(nvcc: None, tmp_path: Path) -> None:
    checkpoint = Checkpoint.open(write_checkpoint(tmp_path / "model"))
    options = Options(quant="q4", context=128, max_batch=4, max_step_tokens=32, ranks=2)
    target = get_target("cuda", Choices(archs=("sm_90",)))
    made = Artifact.open(compile_model(checkpoint, target, tmp_path / "out", options, Progress()))
    assert made.manifest.ranks is not None and "decode" not in made.manifest.functions
    library = made.library_path.read_bytes()
    assert {name for name, _ in entries(library)} >= {"sm_90"}
    assert b"mlcc.all_reduce" in library and b"mlcc.all_gather" in library


def test_a_rank_that_is_killed_is_named(model: Model) -> None:
    executor: Any = model.executor
    prompt = model.text.encode_prompt("hello")
    assert greedy_tokens(model, [prompt], 2)
    os.kill(executor.processes[0], signal.SIGKILL)
    for _ in range(2):
        with pytest.raises(DeviceLostError, match=r"rank 1 of 2 ended \(signal 9\); open the"):
            greedy_tokens(model, [prompt], 2)


def test_a_rank_that_is_waited_for_and_killed(model: Model) -> None:
    """Stopped first, so that rank 0 is in the middle of its sums."""
    executor: Any = model.executor
    (rank,) = executor.processes
    os.kill(rank, signal.SIGSTOP)
    Timer(0.5, os.kill, (rank, signal.SIGKILL)).start()
    with pytest.raises(DeviceLostError, match=r"rank 1 of 2 ended \(signal 9\)"):
        greedy_tokens(model, [model.text.encode_prompt("hello")], 2)


def test_closing_ends_the_others(stand_in: None, folders: dict[str, Path]) -> None:
    opened = open_model(folders["cuda"])
    executor: Any = opened.executor
    (child,) = executor._ranks.children
    opened.close()
    assert child.returncode == 0


def test_an_error_of_a_rank_at_opening_is_raised(
    stand_in: None, folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    real = loader._models_of_ranks

    def gone(artifact: Any) -> Any:
        first, second = real(artifact)
        weights = [replace(entry, path=tmp_path / "gone.safetensors") for entry in second.weights]
        return [first, replace(second, weights=weights)]

    monkeypatch.setattr(loader, "_models_of_ranks", gone)
    with pytest.raises(ArtifactError, match=r"rank 1 of 2: .*gone\.safetensors"):
        open_model(folders["cuda"])
