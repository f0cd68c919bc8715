"""Anthropic's own Python client against the server: text, streams, tools, thinking, refusals. The
model is scripted (`clients/scripted.py`): it reasons and calls tools on request."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from tests.runtime.server.helpers.server_process import SCRIPTED, RunningServer, running

if TYPE_CHECKING:  # takes a second, which each process of a run of all tests would spend
    from anthropic import Anthropic
    from anthropic.types import Message

ASK: dict[str, Any] = {"role": "user", "content": 'call Bash {"command": "echo hi"}'}
HELLO: dict[str, Any] = {"role": "user", "content": "think: hello"}
ANSWER, REASONING = "Hello! How can I help?", "Let me see."
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
    with running("--api-key", "sesame", program=SCRIPTED) as server:
        yield server


@pytest.fixture
def client(scripted: RunningServer) -> Iterator[Anthropic]:
    from anthropic import Anthropic

    with Anthropic(base_url=scripted.url, api_key="sesame", max_retries=0) as made:
        yield made


def ask(client: Anthropic, messages: list[Any], **more: Any) -> Message:
    fields = {"model": "scripted", "max_tokens": 500, "messages": messages, **more}
    return client.messages.create(**fields)


def test_an_answer_without_thinking_unless_it_is_asked_for(client: Anthropic) -> None:
    answer = ask(client, [HELLO], system="be brief")
    assert [block.type for block in answer.content] == ["text"]
    assert answer.content[0].to_dict()["text"] == ANSWER
    assert answer.stop_reason == "end_turn" and answer.usage.output_tokens > len(ANSWER)
    from anthropic.types import Message

    Message.model_validate(answer.to_dict())


@pytest.mark.parametrize(
    ("asked", "kinds"), [(HELLO, ["thinking", "text"]), (ASK, ["tool_use"])], ids=str
)
def test_a_stream_adds_up_to_the_whole_answer(
    client: Anthropic, asked: Any, kinds: list[str]
) -> None:
    more: dict[str, Any] = {"tools": TOOLS, "thinking": THINK}
    whole = ask(client, [asked], **more)
    with client.messages.stream(
        model="scripted", max_tokens=500, messages=[asked], **more
    ) as stream:
        types = [event.type for event in stream]
        final = stream.get_final_message()
    assert types[0] == "message_start" and types[-1] == "message_stop"
    assert [block.type for block in final.content] == kinds
    assert final.stop_reason == whole.stop_reason
    same = [
        [block.model_dump(exclude={"id", "parsed_output"}) for block in message.content]
        for message in (final, whole)
    ]
    assert same[0] == same[1]


def test_a_tool_is_called_answered_and_its_answer_read(client: Anthropic) -> None:
    first = ask(client, [ASK], tools=TOOLS, thinking=THINK)
    (call,) = first.content
    assert call.type == "tool_use" and call.input == {"command": "echo hi"}
    assert first.stop_reason == "tool_use"
    result: dict[str, Any] = {"type": "tool_result", "tool_use_id": call.id, "is_error": True,
                              "content": [{"type": "text", "text": "hi"}]}  # fmt: skip
    turns = [ASK, {"role": "assistant", "content": first.content},
             {"role": "user", "content": [result]}]  # fmt: skip
    second = ask(client, turns, tools=TOOLS)
    assert [block.to_dict().get("text") for block in second.content] == ["The tool said: Error: hi"]
    assert second.usage.cache_read_input_tokens


def test_thinking_that_is_omitted_is_carried(client: Anthropic) -> None:
    hidden: Any = {"type": "adaptive", "display": "omitted"}
    block = ask(client, [HELLO], thinking=hidden).content[0]
    assert block.type == "thinking" and not block.thinking
    carried = [ASK, {"role": "assistant", "content": [block.to_dict()]}, ASK]
    plain = [ASK, {"role": "assistant", "content": [
        {"type": "thinking", "thinking": REASONING, "signature": ""}]}, ASK]  # fmt: skip
    counts = [
        client.messages.count_tokens(model="scripted", messages=turns)  # type: ignore[arg-type]
        for turns in (carried, plain)
    ]
    assert counts[0] == counts[1]


def test_lengths_and_stop_sequences_end_it(client: Anthropic) -> None:
    hello = [{"role": "user", "content": "hello"}]
    assert ask(client, hello, max_tokens=5).stop_reason == "max_tokens"
    stopped = ask(client, hello, stop_sequences=["can"])
    assert (stopped.stop_reason, stopped.stop_sequence) == ("stop_sequence", "can")


def test_tokens_are_counted_as_they_are_used(client: Anthropic) -> None:
    more: dict[str, Any] = {"model": "scripted", "messages": [ASK], "tools": TOOLS}
    counted = client.messages.count_tokens(**more).input_tokens
    usage = client.messages.create(max_tokens=1, **more).usage
    assert counted == usage.input_tokens + (usage.cache_read_input_tokens or 0)


REFUSED: list[tuple[dict[str, Any], str, str]] = [
    ({"model": "other"}, "NotFoundError", "not_found_error"),
    ({"max_tokens": 0}, "BadRequestError", "invalid_request_error"),
    ({"mcp_servers": [{"type": "url"}]}, "BadRequestError", "invalid_request_error"),
]


@pytest.mark.parametrize(("change", "kind", "name"), REFUSED, ids=str)
def test_refusals_are_what_the_client_knows(
    client: Anthropic, change: dict[str, Any], kind: str, name: str
) -> None:
    import anthropic

    body = {"model": "scripted", "max_tokens": 5, "messages": [ASK], **change}
    with pytest.raises(getattr(anthropic, kind)) as caught:
        client.post("/v1/messages", body=body, cast_to=object)
    assert isinstance(caught.value.body, dict)
    assert caught.value.body["type"] == "error" and caught.value.body["error"]["type"] == name


def test_both_headers_are_keys_and_a_wrong_one_is_refused(scripted: RunningServer) -> None:
    from anthropic import Anthropic, AuthenticationError

    bearer = Anthropic(base_url=scripted.url, auth_token="sesame", max_retries=0)
    assert ask(bearer, [ASK]).content
    wrong = Anthropic(base_url=scripted.url, api_key="other", max_retries=0)
    with pytest.raises(AuthenticationError, match="authentication_error"):
        ask(wrong, [ASK])


def test_an_engine_that_dies_ends_a_stream_with_an_error() -> None:
    from anthropic import Anthropic, APIError

    with running("--die-after", "4") as server:
        client = Anthropic(base_url=server.url, api_key="none", max_retries=0)
        hello: Any = [{"role": "user", "content": "hello"}]
        with (
            pytest.raises(APIError),
            client.messages.stream(
                model="toy", max_tokens=50, messages=hello, extra_body={"ignore_eos": True}
            ) as stream,
        ):
            list(stream)
