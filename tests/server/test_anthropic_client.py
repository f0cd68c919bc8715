"""Anthropic's own Python client against the server: text, streams, tools, thinking, refusals. The
model is scripted (`scripted_model.py`), so that it thinks and calls tools when it is told to."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import anthropic
import pytest
from anthropic import Anthropic
from anthropic.types import Message, ToolUseBlock
from scripted_model import DONE, THOUGHT
from server_process import RunningServer, running

ASK: dict[str, Any] = {"role": "user", "content": 'do: Bash {"command": "echo hi"}'}
TOOLS: list[Any] = [
    {
        "name": "Bash",
        "description": "Runs a command.",
        "input_schema": {"type": "object", "properties": {"command": {"type": "string"}}},
    }
]
THINK: Any = {"type": "enabled", "budget_tokens": 1024}


@pytest.fixture(scope="module")
def scripted() -> Iterator[RunningServer]:
    with running("--scripted", "--api-key", "sesame") as server:
        yield server


@pytest.fixture
def client(scripted: RunningServer) -> Iterator[Anthropic]:
    with Anthropic(base_url=scripted.url, api_key="sesame", max_retries=0) as made:
        yield made


def ask(client: Anthropic, messages: list[Any], **more: Any) -> Message:
    fields = {"model": "scripted", "max_tokens": 500, "messages": messages, **more}
    return client.messages.create(**fields)


def test_an_answer_without_thinking_unless_it_is_asked_for(client: Anthropic) -> None:
    answer = ask(client, [{"role": "user", "content": "hello"}], system="be brief")
    assert [block.type for block in answer.content] == ["text"]
    assert answer.content[0].to_dict()["text"] == DONE
    assert answer.stop_reason == "end_turn" and answer.usage.output_tokens == len(DONE) + 1
    Message.model_validate(answer.to_dict())


def test_a_stream_adds_up_to_the_whole_answer(client: Anthropic) -> None:
    more: dict[str, Any] = {"tools": TOOLS, "thinking": THINK}
    whole = ask(client, [ASK], **more)
    with client.messages.stream(
        model="scripted", max_tokens=500, messages=[ASK], **more
    ) as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_message()
    assert kinds[0] == "message_start" and kinds[-1] == "message_stop"
    assert [block.type for block in final.content] == ["thinking", "tool_use"]
    assert final.stop_reason == whole.stop_reason == "tool_use"
    same = [
        [block.model_dump(exclude={"id", "parsed_output"}) for block in message.content]
        for message in (final, whole)
    ]
    assert same[0] == same[1]


def test_a_tool_is_called_answered_and_its_answer_read(client: Anthropic) -> None:
    first = ask(client, [ASK], tools=TOOLS, thinking=THINK)
    thinking, call = first.content
    assert thinking.type == "thinking" and thinking.thinking == THOUGHT
    assert isinstance(call, ToolUseBlock) and call.input == {"command": "echo hi"}
    result: dict[str, Any] = {"type": "tool_result", "tool_use_id": call.id, "is_error": True,
                              "content": [{"type": "text", "text": "hi"}]}  # fmt: skip
    turns = [ASK, {"role": "assistant", "content": first.content},
             {"role": "user", "content": [result, {"type": "text", "text": "Go on."}]}]  # fmt: skip
    second = ask(client, turns, tools=TOOLS)
    assert [block.type for block in second.content] == ["text"]
    assert second.usage.cache_read_input_tokens


def test_thinking_that_is_omitted_is_carried(client: Anthropic) -> None:
    hidden: Any = {"type": "adaptive", "display": "omitted"}
    block = ask(client, [ASK], tools=TOOLS, thinking=hidden).content[0]
    assert block.type == "thinking" and not block.thinking
    carried = [ASK, {"role": "assistant", "content": [block.to_dict()]}, ASK]
    plain = [ASK, {"role": "assistant", "content": [
        {"type": "thinking", "thinking": THOUGHT, "signature": ""}]}, ASK]  # fmt: skip
    counts = [
        client.messages.count_tokens(model="scripted", messages=turns)  # type: ignore[arg-type]
        for turns in (carried, plain)
    ]
    assert counts[0] == counts[1]


def test_lengths_and_stop_sequences_end_it(client: Anthropic) -> None:
    hello = [{"role": "user", "content": "hello"}]
    assert ask(client, hello, max_tokens=5).stop_reason == "max_tokens"
    stopped = ask(client, hello, stop_sequences=["done"])
    assert (stopped.stop_reason, stopped.stop_sequence) == ("stop_sequence", "done")


def test_tokens_are_counted_as_they_are_used(client: Anthropic) -> None:
    more: dict[str, Any] = {"model": "scripted", "messages": [ASK], "tools": TOOLS}
    counted = client.messages.count_tokens(**more).input_tokens
    usage = client.messages.create(max_tokens=1, **more).usage
    assert counted == usage.input_tokens + (usage.cache_read_input_tokens or 0)


REFUSED: list[tuple[dict[str, Any], type[anthropic.APIStatusError], str]] = [
    ({"model": "other"}, anthropic.NotFoundError, "not_found_error"),
    ({"max_tokens": 0}, anthropic.BadRequestError, "invalid_request_error"),
    ({"mcp_servers": [{"type": "url"}]}, anthropic.BadRequestError, "invalid_request_error"),
]


@pytest.mark.parametrize(("change", "kind", "name"), REFUSED, ids=str)
def test_refusals_are_what_the_client_knows(
    client: Anthropic, change: dict[str, Any], kind: type[anthropic.APIStatusError], name: str
) -> None:
    body = {"model": "scripted", "max_tokens": 5, "messages": [ASK], **change}
    with pytest.raises(kind) as caught:
        client.post("/v1/messages", body=body, cast_to=object)
    assert isinstance(caught.value.body, dict)
    assert caught.value.body["type"] == "error" and caught.value.body["error"]["type"] == name


def test_both_headers_are_keys_and_a_wrong_one_is_said(scripted: RunningServer) -> None:
    bearer = Anthropic(base_url=scripted.url, auth_token="sesame", max_retries=0)
    assert ask(bearer, [ASK]).content
    wrong = Anthropic(base_url=scripted.url, api_key="other", max_retries=0)
    with pytest.raises(anthropic.AuthenticationError, match="authentication_error"):
        ask(wrong, [ASK])


def test_an_engine_that_dies_ends_a_stream_with_an_error() -> None:
    with running("--die-after", "4") as server:
        client = Anthropic(base_url=server.url, api_key="none", max_retries=0)
        hello: Any = [{"role": "user", "content": "hello"}]
        with (
            pytest.raises(anthropic.APIError),
            client.messages.stream(model="toy", max_tokens=50, messages=hello) as stream,
        ):
            list(stream)
