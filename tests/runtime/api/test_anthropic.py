"""Anthropic's requests as chat requests, and chat chunks as Anthropic's events, on plain values."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mlcc.api.anthropic.answer import MessageEvents
from mlcc.api.anthropic.errors import anthropic_error
from mlcc.api.anthropic.fields import MESSAGES
from mlcc.api.anthropic.request import parse_messages
from mlcc.api.errors import BusyError, EngineDiedError, NotFoundError
from mlcc.api.openai.requests import parse_chat
from mlcc.api.schema.unknown_fields import unknown
from mlcc.errors import InvalidRequestError, UnsupportedError

BASE: dict[str, Any] = {
    "model": "m",
    "max_tokens": 9,
    "messages": [{"role": "user", "content": "a"}],
}
TOOL = {"name": "f", "description": "d", "input_schema": {"type": "object"}}
CALL = {"type": "tool_use", "id": "t1", "name": "f", "input": {"x": 1}}


def messages(given: list[Any], **more: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = parse_messages({**BASE, **more, "messages": given}).chat[
        "messages"
    ]
    return found


def test_turns_of_a_conversation_with_tools() -> None:
    made = messages(
        [
            {
                "role": "user",
                "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}],
            },
            {"role": "system", "content": "s"},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "t", "signature": "x"},
                    {"type": "redacted_thinking", "data": "y"},
                    {"type": "text", "text": "c"},
                    CALL,
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "t1", "is_error": True, "content": "no"},
                    {"type": "text", "text": "d"},
                ],
            },
        ],
        system=[
            {"type": "text", "text": "x-anthropic-billing-header: v"},
            {"type": "text", "text": "q"},
        ],
    )
    assert made == [
        {"role": "system", "content": "q"},
        {"role": "user", "content": "a\nb"},
        {"role": "system", "content": "s"},
        {
            "role": "assistant",
            "content": "c",
            "reasoning_content": "t",
            "tool_calls": [
                {"id": "t1", "type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}}
            ],
        },
        {"role": "tool", "tool_call_id": "t1", "content": "Error: no"},
        {"role": "user", "content": "d"},
    ]


@pytest.mark.parametrize(
    ("choice", "wanted"),
    [
        ({"type": "auto"}, {"tool_choice": "auto"}),
        (
            {"type": "any", "disable_parallel_tool_use": True},
            {"tool_choice": "required", "parallel_tool_calls": False},
        ),
        ({"type": "none"}, {"tool_choice": "none"}),
        (
            {"type": "tool", "name": "f"},
            {"tool_choice": {"type": "function", "function": {"name": "f"}}},
        ),
    ],
)
def test_choices_of_tools(choice: Any, wanted: dict[str, Any]) -> None:
    chat = parse_messages({**BASE, "tools": [TOOL], "tool_choice": choice}).chat
    assert {name: chat.get(name) for name in wanted} == wanted
    assert chat["tools"][0]["function"] == {
        "name": "f",
        "description": "d",
        "parameters": {"type": "object"},
    }


@pytest.mark.parametrize(
    ("thinking", "wanted"),
    [
        (None, (False, None)),
        ({"type": "disabled"}, (False, None)),
        ({"type": "adaptive"}, (True, None)),
        ({"type": "enabled", "budget_tokens": 2000}, (True, 2000)),
    ],
)
def test_thinking_is_off_unless_it_is_on(thinking: Any, wanted: Any) -> None:
    chat = parse_messages({**BASE, "thinking": thinking}).chat
    assert (chat["enable_thinking"], chat.get("thinking_budget")) == wanted


def test_a_format_of_either_name_but_not_both() -> None:
    wanted = {"type": "json_schema", "schema": {"type": "object"}}
    for body in ({"output_config": {"format": wanted}}, {"output_format": wanted}):
        chat = parse_messages({**BASE, **body}).chat
        assert json.loads(chat["response_format"]["json_schema"]["schema"]) == {"type": "object"}
    with pytest.raises(InvalidRequestError, match="send one of them"):
        parse_messages({**BASE, "output_config": {"format": wanted}, "output_format": wanted})


REFUSED: list[tuple[dict[str, Any], str]] = [
    (
        {"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]},
        "sees no images",
    ),
    ({"messages": [{"role": "user", "content": [{"type": "server_tool_use"}]}]}, "not built"),
    ({"messages": [{"role": "user", "content": [{"text": "a"}]}]}, "type' is missing"),
    (
        {
            "messages": [
                {
                    "role": "user",
                    "content": [{"type": "document", "source": {"type": "base64", "data": "x"}}],
                }
            ]
        },
        "document's text",
    ),
    ({"tool_choice": {"type": "any"}}, "none that can be"),
    ({"container": "c"}, "not built"),
    ({"thinking": {"type": "enabled"}}, "budget_tokens"),
]


@pytest.mark.parametrize(("change", "says"), REFUSED, ids=str)
def test_what_is_refused(change: dict[str, Any], says: str) -> None:
    with pytest.raises((InvalidRequestError, UnsupportedError), match=says):
        parse_messages({**BASE, **change})


def test_unknown_fields_are_named_and_hosted_tools_are_left_out() -> None:
    body = {**BASE, "novel": 1, "tools": [{"type": "web_search_20250305", "name": "w"}, TOOL]}
    assert [error.param for error in unknown(MESSAGES, body)] == ["novel", "tools[0]"]
    assert len(parse_messages(body).chat["tools"]) == 1
    marked = {"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}
    quiet = {**BASE, "messages": [{"role": "user", "content": [marked]}]}
    assert not unknown(MESSAGES, quiet)


def chunk(reason: str | None = None, **delta: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}


def call(index: int, arguments: str, **named: Any) -> dict[str, Any]:
    entry = {"index": index, "function": {"arguments": arguments}}
    if named:
        entry["id"] = named["id"]
        entry["function"]["name"] = named["name"]
    return chunk(tool_calls=[entry])


def run(chunks: list[Any], **body: Any) -> tuple[list[dict[str, Any]], Any]:
    events = MessageEvents(parse_messages({**BASE, **body}), "ab", "m", 7)
    made = [*events.start()]
    for one in chunks:
        made += events.chunk(one)
    made += events.end(None)
    return made, events.message


def test_thinking_text_and_parallel_calls_in_pieces() -> None:
    chunks = [
        chunk(role="assistant", content=""),
        chunk(reasoning_content="h"),
        chunk(reasoning_content="m"),
        chunk(content="\n\n"),
        chunk(content="so"),
        call(0, "", id="c0", name="f"),
        call(0, '{"x":'),
        call(0, " 1}"),
        call(1, '{"x": 2}', id="c1", name="g"),
        chunk("tool_calls"),
        {
            "choices": [],
            "usage": {
                "prompt_tokens": 7,
                "completion_tokens": 5,
                "prompt_tokens_details": {"cached_tokens": 3},
            },
        },
    ]
    events, message = run(chunks, thinking={"type": "adaptive"})
    kinds = [event["type"].removeprefix("content_block_") for event in events]
    assert kinds == [
        "message_start",
        "ping",
        "start",
        "delta",
        "delta",
        "delta",
        "stop",
        "start",
        "delta",
        "stop",
        "start",
        "delta",
        "delta",
        "stop",
        "start",
        "delta",
        "stop",
        "message_delta",
        "message_stop",
    ]
    assert [event["index"] for event in events if event["type"] == "content_block_start"] == [
        *range(4)
    ]
    assert message["content"] == [
        {"type": "thinking", "thinking": "hm", "signature": "mlcc"},
        {"type": "text", "text": "\n\nso", "citations": None},
        {"type": "tool_use", "id": "c0", "name": "f", "input": {"x": 1}},
        {"type": "tool_use", "id": "c1", "name": "g", "input": {"x": 2}},
    ]
    assert message["stop_reason"] == "tool_use"
    assert message["usage"] == {
        "input_tokens": 4,
        "cache_read_input_tokens": 3,
        "cache_creation_input_tokens": 0,
        "output_tokens": 5,
    }


def test_space_before_a_call_is_no_block_and_unrequested_thinking_is_omitted() -> None:
    chunks = [
        chunk(reasoning_content="hm"),
        chunk(content="\n\n"),
        call(0, "{}", id="c", name="f"),
        chunk("tool_calls"),
    ]
    _, message = run(chunks)
    assert [block["type"] for block in message["content"]] == ["tool_use"]


@pytest.mark.parametrize(
    ("tokens", "reason"), [(9, "max_tokens"), (4, "model_context_window_exceeded")]
)
def test_which_length_ended_it(tokens: int, reason: str) -> None:
    usage = {"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": tokens}}
    _, message = run([chunk(content="x"), chunk("length"), usage])
    assert message["stop_reason"] == reason


def test_errors_by_their_status() -> None:
    kinds = [
        anthropic_error(error)["error"]["type"]
        for error in (
            InvalidRequestError("x"),
            NotFoundError("x"),
            BusyError("x"),
            EngineDiedError("x"),
        )
    ]
    assert kinds[:2] == ["invalid_request_error", "not_found_error"]
    assert kinds[2] in ("rate_limit_error", "overloaded_error") and kinds[3] == "api_error"


def test_a_bias_of_tokens_survives_the_translation() -> None:
    """It is checked twice, the second time with numbers as its keys."""
    chat = parse_messages({**BASE, "logit_bias": {"5": -100, "7": 1}}).chat
    assert parse_chat(chat).sampling["logit_bias"] == ((5, -100.0), (7, 1.0))
