"""libmlcc_executor computes the results of TVM's own Python package with the same library: the same
code on the same numbers, so tokens and logits are equal to the bit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mlcc.engine import SamplingParams
from mlcc.engine.scheduler.manual_steps import ManualSteps
from tests.runtime.device.helpers.demo import answers, cpu_executor, text_of, tvm_executor

PROMPTS = ("How much is 17 + 25?", "The cat and the", "1 + 1 = 2, 2 + 2 =")
GREEDY = SamplingParams(temperature=0.0, max_tokens=300, ignore_eos=True)
SAMPLED = SamplingParams(
    temperature=0.9, top_k=40, top_p=0.95, min_p=0.01, seed=7, max_tokens=60, ignore_eos=True
)


@pytest.mark.parametrize("sampling", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
def test_tokens_are_those_of_tvms_package(
    demo: Path, tmp_path: Path, sampling: SamplingParams
) -> None:
    text, old = text_of(demo), tvm_executor(demo, tmp_path)
    expected = answers(text, old, PROMPTS, sampling)
    old.close()
    assert [len(answer) for answer in expected] == [sampling.max_tokens] * len(PROMPTS)
    for threads in (1, 2):
        executor = cpu_executor(demo, threads)
        assert answers(text, executor, PROMPTS, sampling) == expected
        executor.close()


def test_logits_are_those_of_tvms_package(demo: Path, tmp_path: Path) -> None:
    found = []
    for executor in (tvm_executor(demo, tmp_path), cpu_executor(demo)):
        steps = ManualSteps(executor.capacity, 3)
        mixed = steps.step({0: range(5, 25), 1: [7], 2: range(40, 47)})
        later = steps.step({0: [9], 2: [11, 12]}, every_row=True)
        found.append([np.array(executor.logits(batch)) for batch in (mixed, later)])
        executor.close()
    for old, new in zip(*found, strict=True):
        assert new.dtype == np.float32 and np.array_equal(old, new)
    assert found[0][0].shape == (3, executor.capacity.vocab_size)
