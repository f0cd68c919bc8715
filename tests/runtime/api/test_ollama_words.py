"""Ollama's fields converted to OpenAI's and back, where a small model shows nothing of it: tool
calls, reasoning, and the call of each tool result."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mlcc.api.ollama.answer import Durations, Lines, whole
from mlcc.api.ollama.fields import CHAT, GENERATE, OPTIONS
from mlcc.api.ollama.request import chat_body, generate_body, messages, model_name
from mlcc.api.openai.requests import parse_chat, parse_completion
from mlcc.api.schema.chat_fields import CHAT as OPENAI_CHAT
from mlcc.api.schema.chat_fields import COMPLETION as OPENAI_COMPLETION
from mlcc.api.schema.schema import Use
from mlcc.api.schema.unknown_fields import unknown


def call(name: str, **arguments: Any) -> dict[str, Any]:
    return {"function": {"name": name, "arguments": arguments}}


def test_results_find_their_calls() -> None:
    made = messages(
        [
            {"role": "user", "content": "do"},
            {"role": "assistant", "tool_calls": [call("a", x=1), call("b"), call("a", x=2)]},
            {"role": "tool", "content": "of b", "tool_name": "b"},
            {"role": "tool", "content": "first of a", "tool_name": "a"},
            {"role": "tool", "content": "second", "tool_name": "a"},
        ]
    )
    ids = [made[1]["tool_calls"][i]["id"] for i in (0, 1, 2)]
    assert [message["tool_call_id"] for message in made[2:]] == [ids[1], ids[0], ids[2]]
    assert json.loads(made[1]["tool_calls"][2]["function"]["arguments"]) == {"x": 2}
    parse_chat({"messages": made})


def test_a_result_may_name_no_function_and_a_call_may_have_an_id() -> None:
    calls = [{**call("a"), "id": "mine"}, call("b")]
    results = [
        {"role": "tool", "content": "b", "tool_call_id": "call_0_1"},
        {"role": "tool", "content": "a"},
        {"role": "tool", "content": "nobody's", "tool_name": "c"},
    ]
    made = messages([{"role": "assistant", "tool_calls": calls}, *results])
    assert [m["tool_call_id"] for m in made[1:]] == ["call_0_1", "mine", "call_c"]


@pytest.mark.parametrize(
    ("think", "expected"),
    [
        (None, {}),
        (False, {"chat_template_kwargs": {"enable_thinking": False}}),
        (True, {"chat_template_kwargs": {"enable_thinking": True}}),
        ("high", {"reasoning_effort": "high"}),
    ],
)
def test_thinking_is_asked_for(think: Any, expected: dict[str, Any]) -> None:
    fields = CHAT.check({"messages": [{"role": "user", "content": "a"}], "think": think}, "")
    body = chat_body(fields)
    assert {name: body[name] for name in expected} == expected
    assert expected or not body.keys() & {"chat_template_kwargs", "reasoning_effort"}
    assert not unknown(OPENAI_CHAT, body)


def test_every_option_is_one_of_openais_or_changes_nothing() -> None:
    examples: dict[str, Any] = {
        "stop": ["a"], "logit_bias": {"3": 1}, "stop_token_ids": [1], "bad_words": ["a"],
        "dry_sequence_breakers": ["a"], "samplers": None, "ignore_eos": True, "mirostat": 0,
        "include_stop_str_in_output": True,
        "tfs_z": 1, "penalize_newline": True, "num_predict": 5,
    }  # fmt: skip
    options = {row.name: examples.get(row.name, 1) for row in OPTIONS.fields}
    fields = GENERATE.check({"prompt": "x", "raw": True, "options": options}, "")
    body = generate_body(fields)
    assert not unknown(OPENAI_COMPLETION, body)
    sampling = parse_completion(body).sampling
    honoured = {row.sets for row in OPTIONS.fields if row.use is Use.HONOURED and row.sets}
    assert {*honoured, "max_tokens"} <= {*sampling}


@pytest.mark.parametrize("count", [0, -1, -2, None])
def test_no_bound_of_an_answer(count: int | None) -> None:
    options = {} if count is None else {"num_predict": count}
    fields = GENERATE.check({"prompt": "x", "raw": True, "options": options}, "")
    assert parse_completion(generate_body(fields)).sampling["max_tokens"] is None


def test_names() -> None:
    assert model_name("", "demo") == model_name("demo:latest", "demo") == "demo"
    assert model_name("a:latest", "a:latest") == "a:latest"
    assert model_name("demo:q4", "demo") == "demo:q4"


def chunk(delta: dict[str, Any], reason: str | None = None) -> dict[str, Any]:
    return {"choices": [{"delta": delta, "logprobs": None, "finish_reason": reason}]}


def test_calls_come_whole_and_thoughts_apart() -> None:
    def part(index: int, **function: str) -> dict[str, Any]:
        return chunk({"tool_calls": [{"index": index, "function": function}]})

    chunks = [
        chunk({"role": "assistant", "content": ""}),
        chunk({"reasoning_content": "let me "}),
        chunk({"reasoning_content": "see"}),
        chunk({"content": "I ask"}),
        part(0, name="add", arguments=""),
        part(0, arguments='{"a":'),
        part(0, arguments=" 1}"),
        part(1, name="broken", arguments="[1"),
        chunk({}, "tool_calls"),
        {"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 9}},
    ]
    lines = Lines("m", "now", chat=True)
    made = [line for one in chunks for line in lines.take(one)]
    made += lines.end(Durations(10, 4))
    assert [line["message"].get("thinking") for line in made] == ["let me ", "see", *[None] * 3]
    last = whole(made)
    assert last["message"] == {
        "role": "assistant",
        "content": "I ask",
        "thinking": "let me see",
        "tool_calls": [
            {"function": {"index": 0, "name": "add", "arguments": {"a": 1}}},
            {"function": {"index": 1, "name": "broken", "arguments": {"arguments": "[1"}}},
        ],
    }
    assert last["done_reason"] == "stop" and last["done"]
    assert (last["prompt_eval_count"], last["eval_count"]) == (7, 9)
    assert (last["total_duration"], last["eval_duration"]) == (10, 6)
