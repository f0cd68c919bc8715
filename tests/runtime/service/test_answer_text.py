"""What is an answer's text in every protocol, whole and streamed: stop strings count there alone,
the token limit leaves no markup in it, tokens of the reasoning are counted. The model follows a
script; the values are those of the script."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mlcc.model.model import Model
from tests.helpers.dictated_model import scripted
from tests.helpers.service_calls import (
    CHAT,
    MESSAGES,
    PROTOCOLS,
    AnswerParts,
    Calls,
    answer_in,
    calls_to,
    chat_body,
)

CALL = '<tool_call>\n{"name": "lookup", "arguments": {"q": "quay"}}\n</tool_call>'
ANSWERS = {
    "reason": "<think>\nFirst.\n\nQuestion: what is asked?\n</think>\n\nHello.\n\nQuestion: more",
    "call": f"<think>\nA quay?\n</think>\n\n{CALL}",
    "speak": f"I look.\n{CALL}\n",
}
PARAMETERS = {"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]}
TOOLS = [{"type": "function", "function": {"name": "lookup", "parameters": PARAMETERS}}]
THOUGHT = "First.\n\nQuestion: what is asked?"
ARGUMENTS = {"q": "quay"}


def model(folder: Path) -> Model:
    def answer(prompt: str) -> str:
        return next(text for word, text in ANSWERS.items() if f"please {word}" in prompt)

    marks = ("<think>", "</think>", "<tool_call>", "</tool_call>")
    return scripted(folder, answer, marks=marks)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Calls]:
    with calls_to(model(tmp_path_factory.mktemp("scripted"))) as calls:
        yield calls


def ask(service: Calls, path: str, word: str, **fields: Any) -> AnswerParts:
    """The answer, which is the same streamed."""
    whole, streamed = (
        answer_in(
            path, service.post(path, chat_body(path, f"please {word}", stream=stream, **fields))
        )
        for stream in (False, True)
    )
    assert [json.loads(c or "{}") for c in whole.calls] == [json.loads(c) for c in streamed.calls]
    assert whole._replace(calls=()) == streamed._replace(calls=())
    return whole


@pytest.mark.parametrize("path", PROTOCOLS)
def test_a_stop_string_counts_in_the_text(service: Calls, path: str) -> None:
    made = ask(service, path, "reason", stop=["Question:"])
    assert (made.content.rstrip(), made.thought) == ("Hello.", THOUGHT)
    made = ask(service, path, "call", stop=["\n", "quay", "lookup", "<"], tools=TOOLS)
    assert (made.content, [*map(json.loads, made.calls)]) == ("", [ARGUMENTS])
    made = ask(service, path, "speak", stop=["\n"], tools=TOOLS)
    assert (made.content, [*map(json.loads, made.calls)]) == ("I look.", [ARGUMENTS])
    made = ask(service, path, "speak", stop=["look"], tools=TOOLS)
    assert (made.content, made.calls) == ("I ", ())


@pytest.mark.parametrize("path", PROTOCOLS)
@pytest.mark.parametrize("word", ["call", "speak"])
def test_the_token_limit_leaves_no_markup(service: Calls, path: str, word: str) -> None:
    whole = ask(service, path, word, tools=TOOLS)
    for limit in (1, 3, 8, 16, 26):
        made = ask(service, path, word, tools=TOOLS, limit=limit)
        assert whole.content.startswith(made.content.rstrip())
        assert whole.thought.startswith(made.thought)
        assert made.calls in ((), whole.calls)


@pytest.mark.parametrize("path", PROTOCOLS[:3])
def test_tokens_of_the_reasoning_are_counted(service: Calls, path: str, tmp_path: Path) -> None:
    text = model(tmp_path).text
    inside = ANSWERS["reason"].partition("<think>")[2].partition("</think>")[0]
    count = len(text.tokenizer.encode(inside, add_special_tokens=False))
    for stop in (None, ["\n", "."]):
        assert ask(service, path, "reason", stop=stop).reasoning_tokens == count
    assert ask(service, path, "speak", tools=TOOLS).reasoning_tokens == 0


def test_a_stop_string_can_be_in_the_output(service: Calls) -> None:
    for path, field in ((CHAT, "stop"), (MESSAGES, "stop_sequences")):
        body = chat_body(path, "please reason")
        body |= {field: ["Question"], "include_stop_str_in_output": True}
        assert answer_in(path, service.post(path, body)).content == "Hello.\n\nQuestion"
    body = {"prompt": "please reason<|im_start|>assistant\n", "max_tokens": 90, "stop": ["First"]}
    for path in ("/v1/completions", "/completion"):
        for include in (False, True):
            made = service.post(path, {**body, "include_stop_str_in_output": include}).body
            text = made["choices"][0]["text"] if "choices" in made else made["content"]
            assert text.endswith("First") == include


def test_log_probabilities_end_where_the_text_does(service: Calls) -> None:
    body = chat_body(CHAT, "please reason", stop=["\n"])
    choice = service.post(CHAT, {**body, "logprobs": True}).body["choices"][0]
    tokens = "".join(entry["token"] for entry in choice["logprobs"]["content"])
    assert choice["message"]["content"] == "Hello." and tokens.endswith("Hello.")
