"""The demo model on the machine's Vulkan device, against the reference: 8 prompts, greedy. 50 with
--long.

Measured on Mesa's lavapipe: in float32 the logits err by 1e-5 at most, in float16 (pages, and tiles
of matrices) by 4e-3. Bounds for ties allow for the error of two candidates.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np
import pytest

from mlcc.device.compiled.executor import CompiledExecutor
from mlcc.engine import Request, SamplingParams
from mlcc.eval.evaluation import read_rows
from tests.e2e.demo.conftest import Opened
from tests.e2e.demo.equality import compare, greedy_tokens, last_logits
from tests.helpers.demo_model import DEMO

PRECISIONS = {"vulkan-f32": ("f32", 1e-4, 1e-3), "vulkan": ("q4", 1e-2, 2e-2)}
"""Target -> (recipe, how far logits may err, how close the candidates of a tie must be)."""
PROVES = {"vulkan-f32": ("f32",), "vulkan": ("q4", "f16-kv")}
FEW, MANY = 8, pytest.param(50, marks=pytest.mark.long)


@pytest.mark.parametrize("count", [FEW, MANY])
@pytest.mark.parametrize(
    "target",
    [
        pytest.param(t, marks=[pytest.mark.feature(part, "vulkan", "runs") for part in PROVES[t]])
        for t in PRECISIONS
    ],
)
def test_vulkan_answers_as_the_reference(
    opened: Opened, target: str, count: int, record_property: Any
) -> None:
    quant, error_bound, tie_bound = PRECISIONS[target]
    vulkan, reference = opened(quant, target), opened(quant, "reference")
    rows = read_rows(DEMO / "eval.jsonl", ("task", "messages", "answer"))
    chosen = rows[:: len(rows) // count][:count]
    prompts = [vulkan.text.encode_chat(row["messages"]) for row in chosen]
    errors = [np.abs(last_logits(vulkan, p) - last_logits(reference, p)).max() for p in prompts[:8]]
    record_property("max_abs_error", float(max(errors)))
    assert max(errors) < error_bound
    a, b = (greedy_tokens(model, prompts, 24) for model in (vulkan, reference))
    answers = zip(prompts, a, b, strict=True)
    ties = sum(compare(reference, *triple, tie_bound) for triple in answers)
    record_property("ties", ties)
    assert ties <= count // 25


def test_a_step_reads_back_in_one_copy_that_goes_with_it(opened: Opened) -> None:
    """With a step behind it in flight, collecting it submits nothing more."""
    model = opened("q4", "vulkan")
    assert isinstance(model.executor, CompiledExecutor)
    engine, executor, tickets = model.new_engine(), model.executor, deque[int]()
    sampling = SamplingParams(temperature=0.0, max_tokens=6, ignore_eos=True)
    engine.add(Request("a", model.text.encode_prompt("1 + 1 ="), sampling))
    first = model.executor.counts()
    while engine.has_work:
        while len(tickets) < executor.depth and (batch := engine.plan()) is not None:
            tickets.append(executor.submit(batch))
        before = model.executor.counts()
        engine.commit(executor.collect(tickets.popleft()))
        assert model.executor.counts()["submits"] == before["submits"]
    last = model.executor.counts()
    assert last["reads_started"] - first["reads_started"] == 6 == engine.stats().steps
    assert last["reads"] == first["reads"]
