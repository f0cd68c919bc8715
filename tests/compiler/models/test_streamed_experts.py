"""A mixture larger than the available memory runs, and loads only the experts that tokens chose."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import transformers

from mlcc.artifact.folder import Artifact
from mlcc.engine.scheduler.manual_steps import ManualSteps
from mlcc.engine_args import EngineArgs
from mlcc.loader import open_executor
from mlcc_compiler.checkpoint.folder import Checkpoint
from mlcc_compiler.compile import Progress, compile_model
from mlcc_compiler.options import Options
from mlcc_targets import get_target
from tests.compiler.models.helpers.checkpoints import SMALL, save_random

CONFIG: dict[str, Any] = {
    **SMALL,
    "num_hidden_layers": 2,
    "num_experts": 64,
    "num_experts_per_tok": 2,
    "intermediate_size": 768,
}
"""75 MB of experts in float32, of which a token reads 2.4: in 12 places, round each of which the
system may map 2 MB of its file cache."""
NOTE = "all experts and .* stay in their file, and are read as tokens choose them"


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    folder = tmp_path_factory.mktemp("mixture")
    save_random(transformers.OlmoeConfig(**CONFIG), folder)
    (folder / "tokenizer.json").write_text('{"model": {"type": "BPE", "vocab": {}, "merges": []}}')
    options = Options(quant="f32", context=64, max_batch=1, max_step_tokens=16)
    checkpoint = Checkpoint.open(folder)
    compile_model(checkpoint, get_target("cpu"), folder / "out", options, Progress())
    return Artifact.open(folder / "out")


@contextmanager
def opened(artifact: Artifact, memory: int | None) -> Iterator[tuple[Any, list[str]]]:
    """(an executor limited to `memory` bytes, its notes to the user)."""
    notes: list[str] = []
    executor = open_executor(
        artifact, EngineArgs(threads=1, memory_bytes=memory), note=notes.append
    )
    try:
        yield executor, notes
    finally:
        executor.close()


def answer(executor: Any, count: int = 8) -> list[int]:
    """Greedy, behind a prompt; the later steps are replayed without the virtual machine."""
    steps = ManualSteps(executor.capacity)
    batches: list[list[int]] = [[3, 1, 4, 1, 5], *([-1] for _ in range(count))]
    done = (executor.collect(executor.submit(steps.step({0: tokens}))) for tokens in batches)
    return [int(result.tokens[0]) for result in done]


@pytest.mark.feature("streamed", "cpu", "runs")
def test_it_answers_as_one_that_fits(artifact: Artifact) -> None:
    memory = artifact.manifest.memory
    with opened(artifact, None) as (executor, notes):
        whole = answer(executor)
        assert not notes
    with opened(artifact, memory.weights_bytes * 3 // 4 + memory.workspace_bytes) as (few, notes):
        assert re.search(NOTE, " ".join(notes))
        assert answer(few) == whole


@pytest.mark.skipif(sys.platform != "linux", reason="reads Linux's /proc")
def test_what_is_mapped_follows_use(artifact: Artifact) -> None:
    memory = artifact.manifest.memory
    with opened(artifact, memory.weights_bytes * 3 // 4 + memory.workspace_bytes) as (few, _):
        before = resident(artifact.folder)
        assert before < memory.weights_bytes // 10, "opening reads no weights"
        steps = ManualSteps(few.capacity)
        few.collect(few.submit(steps.step({0: [7]})))
        after = resident(artifact.folder)
        assert before < after < memory.weights_bytes // 2, "a token reads two experts of 64"


def resident(folder: Path) -> int:
    """Bytes of the folder's weights that this process has in memory."""
    total, ours = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if re.match(r"[0-9a-f]+-[0-9a-f]+ ", line):
            ours = str(folder) in line and ".safetensors" in line
        elif ours and line.startswith("Rss:"):
            total += int(line.split()[1]) * 1024
    return total
