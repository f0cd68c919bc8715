"""A compiled model within smaller bounds than it was compiled for: equal answers, in smaller
steps."""

from __future__ import annotations

import pytest

from mlcc.engine import Request, SamplingParams, TextDelta
from mlcc.engine_args import EngineArgs
from mlcc.loader import open_model
from mlcc.model.model import Model
from tests.e2e.demo.conftest import Compiled, Opened

PROMPTS = ("How much is 2 + 2?", "Say something about the sea, please.", "1 + 1 =")


def answers(model: Model, tokens: int, rows: int) -> list[list[int]]:
    """Greedy, all at once; no step has more than so many tokens or rows."""
    engine, found = model.new_engine(), [list[int]() for _ in PROMPTS]
    for i, text in enumerate(PROMPTS):
        sampling = SamplingParams(temperature=0.0, max_tokens=12, ignore_eos=True)
        engine.add(Request(str(i), model.text.encode_prompt(text), sampling))
    largest = 0
    while (batch := engine.plan()) is not None:
        assert batch.num_rows <= rows
        largest = max(largest, batch.num_tokens)
        for event in engine.commit(model.executor.collect(model.executor.submit(batch))):
            if isinstance(event, TextDelta):
                found[int(event.request_id)].extend(event.token_ids)
    assert largest == tokens
    return found


@pytest.mark.parametrize("max_rows", [1, 2])
def test_answers_are_the_same_in_smaller_steps(
    compiled: Compiled, opened: Opened, max_rows: int
) -> None:
    model = opened("f32", "cpu")
    lengths = [len(model.text.encode_prompt(text)) for text in PROMPTS]
    whole = answers(model, sum(lengths), len(PROMPTS))
    small = open_model(
        compiled("f32", "cpu"), EngineArgs(max_batch=3, max_step_tokens=5, max_rows=max_rows)
    )
    assert answers(small, 5, max_rows) == whole
    small.close()
