"""Penalties, biases and filters on real kernels: the demo model answers as the reference does."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

from mlcc.model.model import Model
from mlcc.model.session import Session
from tests.e2e.demo.conftest import Opened

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
HOT: dict[str, Any] = {"temperature": 1.3, "seed": 5}
FILTERED: list[dict[str, Any]] = [
    {**HOT, "top_n_sigma": 1.0, "top_p": 0.9},
    {**HOT, "typical_p": 0.5},
    {**HOT, "epsilon_cutoff": 0.05, "eta_cutoff": 0.1},
    {**HOT, "xtc_probability": 0.5, "xtc_threshold": 0.05, "top_k": 20},
    {**HOT, "dynatemp_range": 1.0, "min_p": 0.05},
    {**HOT, "mirostat": 2, "mirostat_tau": 2.0, "frequency_penalty": 0.5},
]
TARGETS = {"cpu": "cpu", "vulkan": "vulkan-f32", "reference": "reference"}


def on(target: str, part: str = "adjust") -> Any:
    return pytest.param(target, marks=pytest.mark.feature(part, target, "runs"))


def answers(model: Model, each: list[dict[str, Any]] = WISHES) -> list[list[int]]:
    session, found = Session(model), []
    for options in each:
        prompt = model.text.encode_prompt(PROMPT)
        text = "".join(session.answer(prompt, {**PLAIN, **options}))
        found.append(model.text.tokenizer.encode(text, add_special_tokens=False).tolist())
    return found


@pytest.fixture(scope="module")
def wanted(opened: Opened) -> Callable[[str], list[list[int]]]:
    """The reference's answers to the wishes of a name, computed once for all targets."""
    named = {"plain": [{}], "adjusted": WISHES, "filtered": FILTERED}
    return cache(lambda name: answers(opened("f32", "reference"), named[name]))


@pytest.mark.parametrize("target", [*map(on, TARGETS)])
def test_answers_are_those_of_the_reference(
    opened: Opened, wanted: Callable[[str], list[list[int]]], target: str
) -> None:
    here = answers(opened("f32", TARGETS[target]))
    assert here == wanted("adjusted")
    (usual,) = wanted("plain")
    assert sum(answer != usual for answer in here) >= 3, "the wishes are meant to change answers"


@pytest.mark.parametrize("target", [on(target, "samplers") for target in TARGETS])
def test_what_filters_leave_is_what_the_reference_leaves(
    opened: Opened, wanted: Callable[[str], list[list[int]]], target: str
) -> None:
    here = answers(opened("f32", TARGETS[target]), FILTERED)
    assert here == wanted("filtered")
    assert len({tuple(answer) for answer in [*here, *answers(opened("f32", "cpu"), [HOT])]}) >= 4
