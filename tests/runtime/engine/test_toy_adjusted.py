"""The toy's adjusted logits and its most likely tokens against the naive twin's, to the bit."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlcc.device.check_batch import BadBatchError
from mlcc.device.toy.executor import ToyExecutor
from mlcc.engine.batch.adjust_tables import AdjustLayout
from mlcc.engine.batch.adjustments import Adjustments, AdjustmentWriter, Penalties, mask_of
from mlcc.engine.batch.batch import Capacity
from mlcc.engine.batch.tables import CacheGroup
from mlcc.engine.scheduler.manual_steps import ManualSteps
from tests.runtime.engine.helpers import naive
from tests.runtime.engine.helpers.drive import SMALL, small

VOCAB = SMALL.vocab_size
CAPACITIES = SMALL, small(CacheGroup("window", 4, 5), CacheGroup("state"), pools=[20, 4])
STEPS = 4
PROMPTS = [3, 1, 4], [1, 5], [9, 2, 6]

numbers = st.floats(-4, 4, width=32)
tokens = st.integers(0, VOCAB - 1)
adjustments_drawn = st.builds(
    naive.Adjustment,
    st.builds(Penalties, st.floats(0.25, 4, width=32), numbers, numbers),
    st.dictionaries(tokens, st.floats(-100, 100, width=32), max_size=5),
    st.none() | st.sets(tokens, min_size=1),
)


def writer_of(capacity: Capacity) -> AdjustmentWriter:
    return AdjustmentWriter(AdjustLayout.of(capacity.layout, capacity.vocab_size))


def adjustments(
    capacity: Capacity, each: list[naive.Adjustment | None], outputs: list[list[int]], flying: bool
) -> Adjustments:
    """Adjustments of the rows that have any. `outputs` lacks the tokens in flight."""
    writer = writer_of(capacity)
    for row, adjustment in enumerate(each):
        if adjustment is None:
            continue
        mask = 0 if adjustment.allowed is None else writer.mask(mask_of(adjustment.allowed, VOCAB))
        history = {**dict.fromkeys(PROMPTS[row], 0), **Counter(outputs[row])}
        writer.row(
            row, adjustment.penalties, history=history, in_flight=row if flying else -1,
            bias=adjustment.bias, mask=mask,
        )  # fmt: skip
    return writer.finish()


@settings(max_examples=60, deadline=None)
@given(
    capacity=st.sampled_from(CAPACITIES),
    each=st.lists(st.none() | adjustments_drawn, min_size=3, max_size=3),
    top=st.integers(0, 20),
)
def test_what_the_toy_chooses_is_what_its_twin_does(
    capacity: Capacity, each: list[naive.Adjustment | None], top: int
) -> None:
    """Greedily, always with one step in flight."""
    toy, steps = ToyExecutor(capacity), ManualSteps(capacity, len(PROMPTS))
    outputs: list[list[int]] = [[] for _ in PROMPTS]
    results = []

    def collect() -> None:
        results.append(toy.collect(results_to_come.pop(0)))
        for row, token in zip(outputs, results[-1].tokens, strict=True):
            row.append(token)

    first = steps.step(dict(enumerate(PROMPTS)), top_logprobs=top)
    results_to_come = [toy.submit(first, adjustments(capacity, each, outputs, flying=False))]
    for _ in range(STEPS - 1):
        batch = steps.step({s: [-1 - s] for s in range(len(PROMPTS))}, top_logprobs=top)
        results_to_come.append(toy.submit(batch, adjustments(capacity, each, outputs, flying=True)))
        collect()
    collect()
    for k, result in enumerate(results):
        for row, prompt in enumerate(PROMPTS):
            adjustment = each[row] or naive.Adjustment()
            best = naive.likeliest(capacity, prompt, outputs[row][:k], adjustment)
            assert (result.tokens[row], result.logprobs[row]) == best[0]
            if top:
                assert result.top_logprobs is not None
                assert result.top_logprobs[row] == best[:top]
        assert top or result.top_logprobs is None


def refused(adjusted: Adjustments, match: str) -> None:
    toy = ToyExecutor(SMALL)
    batch = ManualSteps(SMALL, 2).step({0: [1], 1: [2]})
    with pytest.raises(BadBatchError, match=match):
        toy.collect(toy.submit(batch, adjusted))


def test_adjustments_that_do_not_fit_the_step_are_refused() -> None:
    for count in (3, -1):
        adjusted = writer_of(SMALL).finish()
        adjusted.words[0] = count
        refused(adjusted, f"{count} rows are adjusted")
    writer = writer_of(SMALL)
    writer.row(2)
    refused(writer.finish(), r"rows \[2\] are adjusted")
    writer = writer_of(SMALL)
    writer.row(0, in_flight=0)
    refused(writer.finish(), "row 0 of 0 is in flight")
    refused(writer_of(replace(SMALL, vocab_size=VOCAB - 1)).finish(), "another layout")
    writer = writer_of(SMALL)
    writer.row(0, mask=writer.mask(mask_of([], VOCAB)))
    refused(writer.finish(), "no token is allowed")
