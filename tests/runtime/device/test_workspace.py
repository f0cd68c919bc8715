"""The memory of steps is bounded by the manifest's workspace, whatever the steps: replayed calls
hold none of it, and no size of a step has memory of its own."""

from __future__ import annotations

import random
from pathlib import Path

from mlcc.artifact.folder import Artifact
from mlcc.engine.scheduler.manual_steps import ManualSteps
from tests.runtime.device.helpers.demo import cpu_executor
from tests.runtime.device.test_replay import adjusted

SEQUENCES = 8
SHARED = 4 * 4096


def test_steps_take_what_the_manifest_says(demo: Path) -> None:
    executor = cpu_executor(demo)
    steps = ManualSteps(executor.capacity, SEQUENCES)
    planned = Artifact.open(demo).manifest.memory.workspace_bytes
    rng = random.Random(1)

    def after(sequences: int, tokens: int = 1, *, adjust: bool = False, top: int = 0) -> int:
        batch = steps.step({s: [5] * tokens for s in range(sequences)}, top_logprobs=top)
        adjustments = adjusted(executor, rng, sequences) if adjust else None
        executor.collect(executor.submit(batch, adjustments))
        return executor.use().workspace

    assert executor.use().workspace == 0
    assert 0 < after(SEQUENCES, 64) <= planned
    for sequences in range(1, SEQUENCES + 1):
        for _ in range(3):  # by the machine, kept, made again
            assert after(sequences) <= planned
        executor.logits(steps.step({0: [7]}))
    # Functions run one after the other and share what is as large: tokens, the likeliest.
    for most in (after(3, adjust=True, top=4), after(SEQUENCES, 64), after(2, adjust=True, top=4)):
        assert planned - SHARED <= most <= planned
    executor.close()


def test_each_model_has_its_own(demo: Path) -> None:
    """A step of one model does not overwrite the results of another."""
    first, second = cpu_executor(demo), cpu_executor(demo)
    first.collect(first.submit(ManualSteps(first.capacity).step({0: range(3, 40)})))
    assert first.use().workspace > 0 and second.use().workspace == 0
    first.close()
    second.close()
