"""The demo model behind `mlcc serve`, with the real OpenAI client."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from openai import BadRequestError, OpenAI
from pydantic import BaseModel, Field

from tests.e2e.demo.conftest import Opened
from tests.e2e.demo.equality import compare
from tests.helpers.demo_model import DEMO

BOUND = 0.05
"""q8: batches of other shapes round activations and sums differently; see equality.py."""


@pytest.fixture(scope="module")
def client(compiled: Any) -> Iterator[OpenAI]:
    command = [sys.executable, "-m", "mlcc", "serve", str(compiled("q8", "cpu")), "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout
    try:
        found = re.search(r"http://[\d.:]+", process.stdout.readline())
        assert found
        yield OpenAI(base_url=found[0] + "/v1", api_key="unused", max_retries=0)
    finally:
        process.terminate()
        assert process.wait(timeout=60) in (0, -15, 143)


def questions() -> list[list[dict[str, str]]]:
    lines = (DEMO / "eval.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line)["messages"] for line in lines[:: len(lines) // 8]][:8]


def ask(client: OpenAI, messages: Any) -> str:
    answer = client.chat.completions.create(
        model="demo", messages=messages, temperature=0, max_tokens=40
    )
    return answer.choices[0].message.content or ""


@pytest.mark.feature("server", "cpu", "runs")
@pytest.mark.feature("batching", "cpu", "runs")
def test_eight_at_once_answer_as_one_at_a_time(client: OpenAI, opened: Opened) -> None:
    model = opened("q8", "cpu")
    alone = [ask(client, messages) for messages in questions()]
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(lambda messages: ask(client, messages), questions()))
    ties = 0
    for messages, a, b in zip(questions(), alone, together, strict=True):
        prompt = model.text.encode_chat(messages)
        ids = [model.text.tokenizer.encode(text, add_special_tokens=False) for text in (a, b)]
        ties += compare(model, prompt, *ids, BOUND)
    assert any(alone)
    assert ties <= 1


class Person(BaseModel):
    name: str = Field(min_length=1, max_length=8)
    age: int = Field(ge=0, lt=100)


def test_openais_client_gets_objects(client: OpenAI) -> None:
    """Structured output as in the README: by a schema that the client makes of a class."""
    messages: Any = [{"role": "user", "content": "Who are you?"}]

    def person(seed: int) -> Person:
        answer = client.chat.completions.parse(
            model="demo", messages=messages, seed=seed, max_tokens=120, response_format=Person
        )
        assert answer.choices[0].finish_reason == "stop"
        made = answer.choices[0].message.parsed
        assert made is not None
        return made

    with ThreadPoolExecutor(4) as pool:
        assert all(0 <= made.age < 100 for made in pool.map(person, range(4)))


def test_a_schema_that_takes_too_much_disturbs_no_other_request(client: OpenAI) -> None:
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(ask, client, questions()[0])
        with pytest.raises(BadRequestError) as caught:
            deep = {f"d{i}": {"items": {"$ref": f"#/$defs/d{i + 1}"}} for i in range(2000)}
            body = {"guided_json": {"$defs": deep, "$ref": "#/$defs/d0"}}
            client.completions.create(model="demo", prompt="x", extra_body=body)
        assert caught.value.param == "guided_json"
        assert asked.result() == ask(client, questions()[0])


def test_streaming_says_the_same_and_counts(client: OpenAI) -> None:
    messages: Any = questions()[0]
    stream = client.chat.completions.create(
        model="demo",
        messages=messages,
        temperature=0,
        max_tokens=40,
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = list(stream)
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    usage = chunks[-1].usage
    assert text == ask(client, messages)
    assert usage is not None and usage.completion_tokens > 0
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens


def test_completions_take_token_ids_and_a_seed_repeats(client: OpenAI, opened: Opened) -> None:
    ids = opened("q8", "cpu").text.encode_chat(questions()[1]).tolist()
    texts = [
        client.completions.create(model="demo", prompt=ids, seed=5, max_tokens=16).choices[0].text
        for _ in range(2)
    ]
    assert texts[0] == texts[1] != ""


def test_a_prompt_longer_than_the_context_names_both_numbers(client: OpenAI) -> None:
    with pytest.raises(BadRequestError) as caught:
        client.completions.create(model="demo", prompt=[5] * 5000)
    assert "5000" in caught.value.message and "1024" in caught.value.message


def test_the_model_is_listed(client: OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["demo"]
