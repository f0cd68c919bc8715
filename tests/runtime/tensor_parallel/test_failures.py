"""Ranks that end, and ranks of different models: typed errors, and no rank waits forever."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mlcc.artifact.folder import Artifact
from mlcc.device.compiled.executor import CompiledExecutor
from mlcc.engine.scheduler.manual_steps import ManualSteps
from mlcc.errors import ArtifactError, DeviceLostError, UnsupportedError
from mlcc.loader import compiled_model
from mlcc.model.memory.planner import plan_capacity
from tests.runtime.tensor_parallel.split_models import opened

PATIENCE = 60.0
"""Seconds: only so that a test that hangs ends."""


@pytest.fixture
def artifact(llama: tuple[Any, Path]) -> Path:
    return llama[1]


@pytest.fixture
def executor(artifact: Path) -> Iterator[Any]:
    found = opened(artifact)
    yield found
    found.close()


def step(executor: Any) -> Any:
    return ManualSteps(executor.capacity).step({0: [5, 6, 7]})


def test_a_rank_that_was_killed_is_named(executor: Any) -> None:
    executor.logits(step(executor))
    executor._ranks.children[0].kill()
    executor._ranks.children[0].wait()
    with pytest.raises(DeviceLostError, match=r"rank 1 of 2 ended \(signal 9\); open the model"):
        executor.submit(step(executor))
    with pytest.raises(DeviceLostError, match="rank 1 of 2"):
        executor.submit(step(executor))


def test_a_rank_that_is_killed_in_a_step(executor: Any) -> None:
    """Stopped first, so that rank 0 waits for it in the middle of its sums."""
    found: list[BaseException] = []

    def submit() -> None:
        try:
            executor.submit(step(executor))
        except DeviceLostError as error:
            found.append(error)

    child = executor._ranks.children[0]
    os.kill(child.pid, signal.SIGSTOP)
    thread = threading.Thread(target=submit)
    thread.start()
    thread.join(0.3)
    assert thread.is_alive(), "it does not wait for the rank"
    child.kill()
    thread.join(PATIENCE)
    assert found and "signal 9" in str(found[0])


def test_closing_ends_the_others(artifact: Path) -> None:
    executor = opened(artifact)
    child = executor._ranks.children[0]
    executor.close()
    assert child.returncode == 0


def test_ranks_end_with_rank_0(artifact: Path) -> None:
    """Rank 1 ends even if rank 0 is killed."""
    script = (
        "import os, sys\n"
        "from pathlib import Path\n"
        "from mlcc.artifact.folder import Artifact\n"
        "from mlcc.engine_args import EngineArgs\n"
        "from mlcc.loader import open_executor\n"
        "artifact = Artifact.open(sys.argv[1])\n"
        "found = open_executor(artifact, EngineArgs(threads=1))\n"
        "print(found.processes[0], flush=True)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(artifact)], stdout=subprocess.PIPE, check=False
    )
    assert done.returncode == -signal.SIGKILL
    end, pid = time.monotonic() + PATIENCE, int(done.stdout)
    while _runs(pid):
        assert time.monotonic() < end, "rank 1 is still there"
        time.sleep(0.05)


def _runs(pid: int) -> bool:
    """Whether the process runs; a zombie, which is not reaped yet, does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def test_ranks_that_were_opened_otherwise_are_refused(artifact: Path) -> None:
    """Two ranks in two threads, one of them with fewer pages."""
    opened_ = Artifact.open(artifact)
    manifest, memory = opened_.manifest, os.memfd_create("test")
    capacity = plan_capacity(manifest)
    ends = [os.pipe(), os.pipe()]
    errors: list[Exception] = []

    def open_one(rank: int) -> None:
        try:
            CompiledExecutor(
                compiled_model(opened_, rank),
                replace(capacity, pools=tuple(p - rank for p in capacity.pools)),
                ranks=(rank, 2, memory, (ends[rank][0],)),
            )
        except ArtifactError as error:
            errors.append(error)

    threads = [threading.Thread(target=open_one, args=(rank,)) for rank in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    for descriptor in (memory, *(d for pair in ends for d in pair)):
        os.close(descriptor)
    assert len(errors) == 2
    assert all("was opened with other numbers" in str(error) for error in errors)


def test_an_error_of_a_rank_at_opening_is_raised(artifact: Path, tmp_path: Path) -> None:
    """Rank 1's weights are removed before its process opens them."""
    from mlcc.device.parallel.cpu_executor import RankedExecutor

    found = Artifact.open(artifact)
    models = [compiled_model(found, rank) for rank in (0, 1)]
    gone = [replace(entry, path=tmp_path / "gone.safetensors") for entry in models[1].weights]
    models[1] = replace(models[1], weights=gone)
    with pytest.raises(ArtifactError, match=r"rank 1 of 2: .*gone\.safetensors cannot be mapped"):
        RankedExecutor(models, plan_capacity(found.manifest), 2)


def test_pages_do_not_move(executor: Any) -> None:
    with pytest.raises(UnsupportedError, match="without --tp"):
        executor.read_pages(0, [0])
    with pytest.raises(UnsupportedError, match="without --tp"):
        executor.write_pages(0, [0], b"")
