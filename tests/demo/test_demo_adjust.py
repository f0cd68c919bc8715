"""Penalties and biases on real kernels: the demo model answers as the reference does."""

from __future__ import annotations

from typing import Any

import pytest

from demo.conftest import Opened
from mlcc.model.model import Model
from mlcc.model.session import Session

PROMPT = "Once upon a time"
PLAIN: dict[str, Any] = {"temperature": 0.0, "max_tokens": 24, "ignore_eos": True}
WISHES: list[dict[str, Any]] = [
    {"frequency_penalty": 2.0},
    {"presence_penalty": -2.0},
    {"repetition_penalty": 1.5},
    {"logit_bias": ((300, 98.0), (301, 97.0)), "frequency_penalty": 1.5},
    {"logit_bias": ((300, -100.0),), "min_tokens": 20, "ignore_eos": False},
    {"repetition_penalty": 1.3, "presence_penalty": 1.0, "temperature": 0.8, "seed": 3},
]
TARGETS = {"cpu": "cpu", "vulkan": "vulkan-f32", "reference": "reference"}


def on(target: str) -> Any:
    return pytest.param(target, marks=pytest.mark.feature("adjust", target, "runs"))


def answers(model: Model) -> list[list[int]]:
    session, found = Session(model), []
    for wishes in WISHES:
        prompt = model.text.encode_prompt(PROMPT)
        text = "".join(session.answer(prompt, {**PLAIN, **wishes}))
        found.append(model.text.tokenizer.encode(text, add_special_tokens=False).tolist())
    return found


@pytest.mark.parametrize("target", [*map(on, TARGETS)])
def test_answers_are_those_of_the_reference(opened: Opened, target: str) -> None:
    here, there = (answers(opened("f32", t)) for t in (TARGETS[target], "reference"))
    assert here == there
    plain = Session(opened("f32", "reference"))
    prompt = plain.model.text.encode_prompt(PROMPT)
    usual = "".join(plain.answer(prompt, PLAIN))
    ids = plain.model.text.tokenizer.encode(usual, add_special_tokens=False).tolist()
    assert sum(answer != ids for answer in here) >= 3, "the wishes are meant to change answers"
