"""Requests of /v1/responses as chat requests, and chat chunks as its events, on plain values."""

from __future__ import annotations

from typing import Any

import pytest

from mlcc.api.openai_responses.answer import ResponseEvents
from mlcc.api.openai_responses.fields import RESPONSES
from mlcc.api.openai_responses.request import parse_responses
from mlcc.api.parsers.opaque_reasoning import packed, unpacked
from mlcc.api.schema.unknown_fields import unknown
from mlcc.errors import InvalidRequestError, UnsupportedError

FUNCTION = {"type": "function", "name": "f", "parameters": {"type": "object"}, "strict": True}
TOOLS: list[Any] = [
    FUNCTION,
    {
        "type": "namespace",
        "name": "n",
        "description": "",
        "tools": [FUNCTION, {"type": "custom", "name": "c"}],
    },
    {
        "type": "custom",
        "name": "patch",
        "description": "Edits.",
        "format": {"type": "grammar", "syntax": "lark", "definition": "start: /x/"},
    },
    {"type": "web_search", "external_web_access": False},
]


def chat(**body: Any) -> dict[str, Any]:
    parsed = parse_responses(body)
    return parsed.chat(parsed.items())


def test_items_of_a_conversation_as_messages() -> None:
    items = [
        {"role": "developer", "content": "dev"},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "a"}]},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "b"}]},
        {"type": "reasoning", "id": "rs", "summary": [], "encrypted_content": packed("hm")},
        {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "c", "annotations": []}],
        },
        {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}", "namespace": "n"},
        {"type": "custom_tool_call", "call_id": "2", "name": "patch", "input": "x"},
        {"type": "function_call_output", "call_id": "1", "output": "one"},
        {
            "type": "custom_tool_call_output",
            "call_id": "2",
            "output": [{"type": "input_text", "text": "two"}],
        },
        {"role": "developer", "content": "late"},
    ]
    assert chat(input=items, instructions="first")["messages"] == [
        {"role": "system", "content": "first"},
        {"role": "system", "content": "dev"},
        {"role": "user", "content": "a"},
        {"role": "user", "content": "b"},
        {
            "role": "assistant",
            "content": "c",
            "reasoning_content": "hm",
            "tool_calls": [
                {"id": "1", "type": "function", "function": {"name": "n__f", "arguments": "{}"}},
                {
                    "id": "2",
                    "type": "function",
                    "function": {"name": "patch", "arguments": '{"input": "x"}'},
                },
            ],
        },
        {"role": "tool", "tool_call_id": "1", "content": "one"},
        {"role": "tool", "tool_call_id": "2", "content": "two"},
        {"role": "system", "content": "late"},
    ]


def test_reasoning_in_full_goes_before_a_summary() -> None:
    full = {
        "type": "reasoning",
        "content": [{"type": "reasoning_text", "text": "all"}],
        "summary": [{"type": "summary_text", "text": "short"}],
    }
    for item, text in ((full, "all"), ({**full, "content": None}, "short")):
        made = chat(
            input=[item, {"role": "assistant", "content": "a"}, {"role": "user", "content": "b"}]
        )
        assert made["messages"][0]["reasoning_content"] == text


def test_what_others_encrypted_is_nothing() -> None:
    assert unpacked(packed("a\N{SNOWMAN}")) == "a\N{SNOWMAN}"
    assert unpacked("gAAAAA") == unpacked("mlcc.!!") == unpacked("mlcc./w==") == ""


def test_tools_become_functions_and_hosted_ones_are_named() -> None:
    made = chat(input="a", tools=TOOLS)
    names = [tool["function"]["name"] for tool in made["tools"]]
    assert names == ["f", "n__f", "n__c", "patch"]
    assert made["tools"][0]["function"]["strict"] is True
    assert "start: /x/" in made["tools"][3]["function"]["description"]
    body = {"input": "a", "tools": TOOLS, "text": {"verbosity": "low"}, "novel": 1}
    named = [error.param for error in unknown(RESPONSES, body)]
    assert named == ["novel", "tools[3]", "text.verbosity"]


@pytest.mark.parametrize(
    ("choice", "wanted"),
    [
        ("required", "required"),
        (
            {"type": "function", "name": "f", "namespace": "n"},
            {"type": "function", "function": {"name": "n__f"}},
        ),
        (
            {
                "type": "allowed_tools",
                "mode": "auto",
                "tools": [{"type": "function", "name": "f"}, {"type": "web_search"}],
            },
            {
                "type": "allowed_tools",
                "allowed_tools": {
                    "mode": "auto",
                    "tools": [{"type": "function", "function": {"name": "f"}}],
                },
            },
        ),
    ],
)
def test_choices_of_tools(choice: Any, wanted: Any) -> None:
    assert chat(input="a", tools=TOOLS, tool_choice=choice)["tool_choice"] == wanted


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"tools": [FUNCTION, FUNCTION]}, "second tool"),
    ({"tool_choice": "required"}, "none that can be"),
    ({"tool_choice": {"type": "web_search"}, "tools": TOOLS}, "web_search"),
    ({"input": [{"type": "item_reference", "id": "msg_1"}]}, "msg_1"),
    ({"input": [{"role": "user", "content": [{"type": "input_file"}]}]}, "input_text"),
    ({"input": []}, "missing"),
    ({"metadata": {"a": 1}}, "metadata.a"),
    ({"text": {"format": {"type": "json_schema"}}}, "schema"),
    ({"prompt": {"id": "p"}}, "instructions"),
]


@pytest.mark.parametrize(("change", "says"), REFUSED, ids=str)
def test_what_is_refused(change: dict[str, Any], says: str) -> None:
    with pytest.raises((InvalidRequestError, UnsupportedError), match=says):
        chat(**{"input": "a", **change})


def chunk(reason: str | None = None, **delta: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}


def call(index: int, name: str, *arguments: str) -> list[dict[str, Any]]:
    first = {"index": index, "id": f"call_{index}", "function": {"name": name, "arguments": ""}}
    more = [{"index": index, "function": {"arguments": text}} for text in arguments]
    return [chunk(tool_calls=[entry]) for entry in (first, *more)]


def run(chunks: list[Any], **body: Any) -> tuple[list[dict[str, Any]], Any]:
    parsed = parse_responses({"input": "a", **body})
    events = ResponseEvents(parsed, "ab", "m", 1, {"temperature": 0.5}, lambda: 2)
    made = [*events.start()]
    for one in chunks:
        made += events.chunk(one)
    made += events.end()
    return made, events.answer


def test_the_events_of_all_kinds_of_items() -> None:
    chunks = [
        chunk(role="assistant", content=""),
        chunk(reasoning_content="hm"),
        chunk(content="\n"),
        chunk(content="so"),
        *call(0, "n__f", '{"x":', " 1}"),
        *call(1, "patch", '{"input": "t"}'),
        chunk("tool_calls"),
    ]
    events, answer = run(chunks, tools=TOOLS)
    kinds = [event["type"].removeprefix("response.") for event in events]
    assert kinds == [
        "created",
        "in_progress",
        "output_item.added",
        "content_part.added",
        "reasoning_text.delta",
        "reasoning_text.done",
        "content_part.done",
        "output_item.done",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "output_item.added",
        "function_call_arguments.delta",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "output_item.done",
        "output_item.added",
        "custom_tool_call_input.delta",
        "custom_tool_call_input.done",
        "output_item.done",
        "completed",
    ]
    assert [event["sequence_number"] for event in events] == [*range(len(events))]
    assert [(item["type"], item["status"]) for item in answer["output"]] == [
        ("reasoning", "completed"),
        ("message", "completed"),
        ("function_call", "completed"),
        ("custom_tool_call", "completed"),
    ]
    function, custom = answer["output"][2:]
    assert (function["namespace"], function["name"], function["arguments"]) == (
        "n",
        "f",
        '{"x": 1}',
    )
    assert custom["input"] == "t" and "namespace" not in custom
    added = next(event for event in events if event["type"] == "response.output_item.added")
    assert added["item"]["content"] == [] and added["item"]["status"] == "in_progress"
    assert answer["temperature"] == 0.5 and answer["completed_at"] == 2


def test_an_answer_that_is_cut_or_empty() -> None:
    _, cut = run([chunk(content="a"), chunk("length")])
    assert cut["status"] == "incomplete" and cut["output"][0]["status"] == "incomplete"
    assert cut["incomplete_details"] == {"reason": "max_output_tokens"}
    _, empty = run([chunk("stop")])
    assert empty["output"][0]["content"][0]["text"] == ""
    _, spaces = run([chunk(content=" \n"), chunk("stop")])
    assert spaces["output"][0]["content"][0]["text"] == " \n"
