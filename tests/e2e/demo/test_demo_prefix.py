"""The prefix cache on real kernels: a conversation of the demo model with it and without."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from mlcc.engine.events import Finished
from mlcc.engine.request import Request, SamplingParams
from mlcc.model.driver import Driver
from mlcc.model.model import Model
from mlcc.model.session import Session
from tests.e2e.demo.conftest import Opened
from tests.e2e.demo.equality import compare

QUESTIONS = ("How much is 21 + 21?", "And what is the capital of France?", "Count from 1 to 5.")
FIELDS = {"temperature": 0.0, "max_tokens": 16}
BOUNDS = {"cpu": ("q8", 0.05), "vulkan": ("q4", 2e-2), "reference": ("f32", 1e-3)}
"""Target -> (recipe, how close the candidates of a tie must be): chunks of a prompt that have other
lengths are rounded differently."""


def on(target: str, part: str = "prefix") -> Any:
    return pytest.param(target, marks=pytest.mark.feature(part, target, "runs"))


def conversation(model: Model) -> list[tuple[list[int], list[int], int]]:
    """The prompt, the answer and the cached tokens of each turn. The user's texts do not depend on
    the answers, but later prompts contain them."""
    session, messages, turns = Session(model), list[dict[str, str]](), []
    for question in QUESTIONS:
        messages.append({"role": "user", "content": question})
        prompt = model.text.encode_chat(messages).tolist()
        text = "".join(session.chat(messages, FIELDS))
        assert session.last is not None
        ids = model.text.tokenizer.encode(text, add_special_tokens=False).tolist()
        turns.append((prompt, ids, session.last.cached_tokens))
        messages.append({"role": "assistant", "content": text})
    return turns


@pytest.mark.parametrize("target", [*map(on, BOUNDS)])
def test_a_conversation_is_the_same_and_computed_once(opened: Opened, target: str) -> None:
    quant, bound = BOUNDS[target]
    model = opened(quant, target)
    without = conversation(replace(model, prefix_cache=False))
    cached = conversation(model)
    assert [turn[2] for turn in without] == [0, 0, 0]
    for (prompt, a, _), (same, b, _) in zip(without, cached, strict=True):
        if prompt != same or compare(model, prompt, a, b, bound):
            break  # after a tie the conversations differ
    before = 0
    for prompt, _, found in cached:
        assert found >= before
        before = len(prompt)


@pytest.mark.parametrize("target", [on(target, "answers") for target in BOUNDS])
def test_several_answers_compute_their_prompt_once(opened: Opened, target: str) -> None:
    quant, bound = BOUNDS[target]
    model = opened(quant, target)
    prompt = model.text.encode_chat([{"role": "user", "content": QUESTIONS[0]}]).tolist()
    driver, ends = Driver(model), dict[str, Finished]()
    answers: dict[str, list[int]] = {name: [] for name in "abc"}
    for name in answers:
        sampling = SamplingParams(temperature=0.0, max_tokens=16)
        driver.engine.add(Request(name, prompt, sampling, sampling_group="f"))
    while driver.has_work:
        for event in driver.step():
            if isinstance(event, Finished):
                ends[event.request_id] = event
            else:
                answers[event.request_id] += event.token_ids
    assert [ends[name].cached_tokens for name in "abc"] == [0, len(prompt) - 1, len(prompt) - 1]
    for name in "bc":
        compare(model, prompt, answers["a"], answers[name], bound)
