"""The demo model in a Chromium tab against the `cpu` target: four prompts, greedy and sampled.

50 of each with --long.

Requests come from the OpenAI client; the bridge passes them to the page's own `fetch`. Chromium
computes on SwiftShader, in float32; `equality.py` defines "equal".
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from openai import OpenAI

from mlcc.eval.evaluation import read_rows
from mlcc.model.session import Session
from tests.e2e.demo.conftest import Compiled, Opened
from tests.e2e.demo.equality import compare
from tests.helpers.demo_model import DEMO
from tests.helpers.web_package import bridge

FEW, MANY = 4, pytest.param(50, marks=pytest.mark.long)
TIE = 1e-3
LENGTH = 12
AT_ONCE = 4

pytestmark = [
    pytest.mark.feature(part, "webgpu", "runs") for part in ("llama", "f32", "batching", "server")
]


@pytest.fixture(scope="module")
def tab(compiled: Compiled) -> Iterator[OpenAI]:
    """A client of the engine in a page."""
    with bridge("chromium", compiled("f32", "webgpu-f32")) as url:
        yield OpenAI(base_url=f"{url}/v1", api_key="unused", max_retries=0)


def conversations(count: int) -> list[Any]:
    rows = read_rows(DEMO / "eval.jsonl", ("task", "messages", "answer"))
    return [row["messages"] for row in rows[:: len(rows) // count][:count]]


def answers(tab: OpenAI, opened: Opened, temperature: float, count: int) -> list[tuple[str, str]]:
    """The text of each conversation's answer in the tab, several at once, and on the CPU."""

    def ask(numbered: tuple[int, Any]) -> str:
        seed, messages = numbered
        answer = tab.chat.completions.create(
            model="demo",
            messages=messages,
            max_tokens=LENGTH,
            temperature=temperature,
            seed=seed,
        )
        return answer.choices[0].message.content or ""

    with ThreadPoolExecutor(AT_ONCE) as pool:
        there = list(pool.map(ask, enumerate(conversations(count))))
    session = Session(opened("f32", "cpu"))
    here = [
        "".join(session.chat(messages, fields))
        for seed, messages in enumerate(conversations(count))
        if (fields := {"temperature": temperature, "seed": seed, "max_tokens": LENGTH})
    ]
    return list(zip(there, here, strict=True))


@pytest.mark.parametrize("count", [FEW, MANY])
def test_greedy_answers_are_those_of_the_cpu(
    tab: OpenAI, opened: Opened, count: int, record_property: Any
) -> None:
    model, ties = opened("f32", "cpu"), 0
    for messages, pair in zip(conversations(count), answers(tab, opened, 0, count), strict=True):
        ids = [model.text.tokenizer.encode(text, add_special_tokens=False) for text in pair]
        ties += compare(model, model.text.encode_chat(messages), *ids, TIE)
    record_property("ties", ties)
    assert ties <= count // 25


@pytest.mark.feature("adjust", "webgpu", "runs")
def test_penalties_and_biases_are_those_of_the_cpu(tab: OpenAI, opened: Opened) -> None:
    """Of two tokens with equal biases, the penalties choose the one that is less frequent so
    far."""
    session = Session(opened("f32", "cpu"))
    bias = {300: 98.0, 301: 98.0}
    prompt = session.model.text.encode_prompt("once upon a time")
    fields = {"temperature": 0.0, "max_tokens": 8, "ignore_eos": True, "frequency_penalty": 2.0}
    here = "".join(session.answer(prompt, {**fields, "logit_bias": tuple(bias.items())}))
    there = tab.completions.create(
        model="demo",
        prompt="once upon a time",
        temperature=0,
        max_tokens=8,
        frequency_penalty=2.0,
        logit_bias={str(token): 98 for token in bias},
        extra_body={"ignore_eos": True},
    )
    assert there.choices[0].text == here and " =" in here and "en" in here


@pytest.mark.feature("samplers", "webgpu", "runs")
def test_filters_leave_what_they_leave_on_the_cpu(tab: OpenAI, opened: Opened) -> None:
    """Each of them, and all that are kept together, at a temperature that would show."""
    session, usual = Session(opened("f32", "cpu")), {"temperature": 1.3, "seed": 5}
    prompt = session.model.text.encode_prompt("once upon a time")
    for options in (
        {"top_n_sigma": 1.0, "typical_p": 0.6, "eta_cutoff": 0.1},
        {"xtc_probability": 0.5, "xtc_threshold": 0.05, "top_k": 20},
        {"dynatemp_range": 1.0, "epsilon_cutoff": 0.05},
        {"mirostat": 2, "mirostat_tau": 2.0},
    ):
        fields: dict[str, Any] = {**usual, **options, "ignore_eos": True}
        here = "".join(session.answer(prompt, {**fields, "max_tokens": 8}))
        there = tab.completions.create(
            model="demo", prompt="once upon a time", max_tokens=8, extra_body=fields
        )
        assert there.choices[0].text == here


@pytest.mark.feature("prefix", "webgpu", "runs")
def test_the_next_turn_is_not_computed_anew(tab: OpenAI) -> None:
    """The first turn is found in the prefix cache, and not with another salt: equal answers."""
    messages = conversations(FEW)[0]

    def ask(conversation: Any, salt: str) -> tuple[str, int]:
        answer = tab.chat.completions.create(
            model="demo",
            messages=conversation,
            max_tokens=LENGTH,
            temperature=0,
            extra_body={"cache_salt": salt},
        )
        assert answer.usage and answer.usage.prompt_tokens_details
        cached = answer.usage.prompt_tokens_details.cached_tokens
        return answer.choices[0].message.content or "", cached or 0

    first, cached = ask(messages, "a")
    assert cached == 0
    turn = [{"role": "assistant", "content": first}, {"role": "user", "content": "And 2 + 2?"}]
    again, cached = ask([*messages, *turn], "a")
    assert cached >= 20
    assert ask([*messages, *turn], "b") == (again, 0)


@pytest.mark.feature("sampling", "webgpu", "runs")
@pytest.mark.parametrize("count", [FEW, MANY])
def test_the_same_seed_samples_the_same_text(tab: OpenAI, opened: Opened, count: int) -> None:
    """A draw falls between two candidates' shares: rounding moves it for one token in 100,000."""
    pairs = answers(tab, opened, 1.0, count)
    differing = [pair for pair in pairs if pair[0] != pair[1]]
    assert not differing
    assert len({text for text, _ in pairs}) > count / 2, "sampling is meant to vary"
