"""Equality of two runs of a real model in floats (docs/internals/structure.md, "Oracles").

Equal tokens; or, at the first difference, the logits of both candidates within a stated bound: then
the pair is a tie, and ties are counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mlcc.engine import SamplingParams
from mlcc.engine.scheduler.manual_steps import ManualSteps
from mlcc.model.model import Model


def greedy_tokens(model: Model, prompts: Sequence[Sequence[int]], limit: int) -> list[list[int]]:
    """Greedy answers to all prompts at once, through the engine, as token ids."""
    greedy = SamplingParams(temperature=0.0, max_tokens=limit)
    return answer_tokens(model, prompts, [greedy] * len(prompts))


def answer_tokens(
    model: Model, prompts: Sequence[Sequence[int]], sampling: Sequence[SamplingParams]
) -> list[list[int]]:
    """Answers to all prompts at once, each by its own parameters."""
    from mlcc.engine import Request, TextDelta
    from mlcc.model.driver import Driver

    driver = Driver(model)
    answers: list[list[int]] = [[] for _ in prompts]
    for i, (prompt, parameters) in enumerate(zip(prompts, sampling, strict=True)):
        driver.engine.add(Request(str(i), list(prompt), parameters))
    while driver.has_work:
        for event in driver.step():
            if isinstance(event, TextDelta):
                answers[int(event.request_id)].extend(event.token_ids)
    return answers


def last_logits(model: Model, ids: Sequence[int]) -> Any:
    """Logits [vocab] after a prefix, in one step on the first pages."""
    batch = ManualSteps(model.capacity).step({0: ids})
    return np.asarray(model.executor.logits(batch))[0]  # type: ignore[attr-defined]


def compare(
    model: Model, prompt: Sequence[int], a: Sequence[int], b: Sequence[int], bound: float
) -> bool:
    """Whether two answers differ by a tie. Raises AssertionError if they differ by more."""
    if list(a) == list(b):
        return False
    at = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), None)
    if at is None:
        at = min(len(a), len(b))  # one ended: its candidate was an end token
    logits = last_logits(model, [*prompt, *a[:at]])
    ends = sorted(model.text.eos_ids, key=lambda i: -logits[i])
    first, second = ([*answer, ends[0]][at] for answer in (a, b))
    gap = abs(float(logits[first] - logits[second]))
    assert gap < bound, f"answers differ at token {at} by {gap:.3g} in the logits"
    return True
