"""OpenAI's own Python client against /v1/responses. The model is scripted (`clients/scripted.py`):
it reasons and calls tools on request."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from openai import OpenAI
from openai.types.responses import Response, ResponseFunctionToolCall, ResponseStreamEvent
from pydantic import TypeAdapter

from tests.runtime.server.helpers.server_process import SCRIPTED, RunningServer, running

PARAMETERS = {"type": "object", "properties": {"cmd": {"type": "string"}}}
RUN: Any = {"type": "function", "name": "run", "parameters": PARAMETERS, "strict": False}
ASK = 'call run {"cmd": "echo hi"}'
ANSWER, REASONING, AFTER_TOOL = "Hello! How can I help?", "Let me see.", "The tool said: hi"


@pytest.fixture(scope="module")
def scripted() -> Iterator[RunningServer]:
    with running("--api-key", "sesame", "--api-key", "other", program=SCRIPTED) as server:
        yield server


def of(server: RunningServer, key: str = "sesame") -> OpenAI:
    return OpenAI(base_url=f"{server.url}/v1", api_key=key, max_retries=0)


def ask(client: OpenAI, input: Any, **more: Any) -> Response:
    return client.responses.create(**{"model": "scripted", "input": input, **more})


def valid(answer: Response) -> None:
    """Strictly of the types that the client has; building them checks nothing."""
    Response.model_validate(answer.to_dict())


def test_an_answer_is_of_the_types_and_says_what_the_chat_does(scripted: RunningServer) -> None:
    client = of(scripted)
    answer = ask(client, "think: hello", instructions="be brief", metadata={"a": "b"}, tools=[RUN])
    valid(answer)
    chat = client.chat.completions.create(
        model="scripted", messages=[{"role": "user", "content": "think: hello"}]
    )
    assert answer.output_text == chat.choices[0].message.content == ANSWER
    assert [item.type for item in answer.output] == ["reasoning", "message"]
    assert answer.metadata == {"a": "b"} and answer.status == "completed"


@pytest.mark.parametrize("summary", [None, "auto"])
def test_a_stream_of_reasoning_is_of_the_types_and_adds_up(
    scripted: RunningServer, summary: Any
) -> None:
    more: dict[str, Any] = {"reasoning": {"summary": summary}} if summary else {}
    more["include"] = ["reasoning.encrypted_content"]
    kinds, final = streamed(of(scripted), "think: hello", **more)
    thinking = "reasoning_summary_text" if summary else "reasoning_text"
    assert {f"response.{thinking}.delta", f"response.{thinking}.done"} <= kinds
    thought = final.output[0]
    assert thought.type == "reasoning" and final.output_text == ANSWER
    parts: Any = thought.summary if summary else thought.content
    assert parts[0].text == REASONING and thought.encrypted_content


def test_a_stream_of_calls_is_of_the_types_and_adds_up(scripted: RunningServer) -> None:
    two = f'{ASK} and run {{"cmd": "ls"}}'
    kinds, final = streamed(of(scripted), two, tools=[RUN])
    assert "response.function_call_arguments.done" in kinds
    calls = [item for item in final.output if isinstance(item, ResponseFunctionToolCall)]
    assert [call.arguments for call in calls] == ['{"cmd": "echo hi"}', '{"cmd": "ls"}']


def streamed(client: OpenAI, input: str, **more: Any) -> tuple[set[str], Response]:
    """The kinds of events, each of which is validated, and the client's view of them."""
    adapter: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
    raw = client.responses.create(model="scripted", input=input, stream=True, **more)
    events = [adapter.validate_python(event.to_dict()) for event in raw]
    assert [event.sequence_number for event in events] == list(range(len(events)))
    with client.responses.stream(model="scripted", input=input, **more) as stream:
        for _ in stream:
            pass
        return {event.type for event in events}, stream.get_final_response()


def test_a_tool_is_called_and_answered_with_and_without_the_store(scripted: RunningServer) -> None:
    client = of(scripted)
    first = ask(client, ASK, tools=[RUN])
    call = first.output[-1]
    assert isinstance(call, ResponseFunctionToolCall)
    output = {"type": "function_call_output", "call_id": call.call_id, "output": "hi"}
    kept = ask(client, [output], tools=[RUN], previous_response_id=first.id)
    items = [{"role": "user", "content": ASK}, *[item.to_dict() for item in first.output], output]
    sent = ask(client, items, tools=[RUN], store=False)
    assert kept.output_text == sent.output_text == AFTER_TOOL
    assert kept.usage and sent.usage and kept.usage.input_tokens == sent.usage.input_tokens
    listed = [item.type for item in client.responses.input_items.list(kept.id, order="asc")]
    assert listed == ["message", "function_call", "function_call_output"]
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(sent.id)


def test_tools_in_namespaces_and_custom_tools_come_back_as_they_were(
    scripted: RunningServer,
) -> None:
    client = of(scripted)
    tools: list[Any] = [
        {"type": "namespace", "name": "mcp", "description": "", "tools": [RUN]},
        {"type": "custom", "name": "patch"},
        {"type": "web_search"},
    ]
    call: Any = ask(client, ASK.replace("run", "mcp__run"), tools=tools).output[-1]
    assert (call.name, call.namespace) == ("run", "mcp")
    first = ask(client, 'call patch {"input": "free text"}', tools=tools)
    custom: Any = first.output[-1]
    valid(first)
    assert (custom.type, custom.input) == ("custom_tool_call", "free text")
    output = {"type": "custom_tool_call_output", "call_id": custom.call_id, "output": "ok"}
    again = ask(client, [output], tools=tools, previous_response_id=first.id)
    assert again.output_text == "The tool said: ok"


def test_no_key_sees_what_another_keeps(scripted: RunningServer) -> None:
    mine, other = of(scripted), of(scripted, "other")
    answer = ask(mine, "hello")
    assert mine.responses.retrieve(answer.id) == answer
    for asked in (
        lambda: other.responses.retrieve(answer.id),
        lambda: other.responses.delete(answer.id),
        lambda: other.responses.cancel(answer.id),
        lambda: other.responses.input_items.list(answer.id),
    ):
        with pytest.raises(openai.NotFoundError):
            asked()
    with pytest.raises(openai.BadRequestError, match="not found"):
        ask(other, "more", previous_response_id=answer.id)
    mine.responses.delete(answer.id)
    with pytest.raises(openai.NotFoundError):
        mine.responses.retrieve(answer.id)


def test_a_streamed_answer_can_be_cancelled() -> None:
    with running("--delay", "0.02") as server:
        client = of(server)
        stream = client.responses.create(model="toy", input="hello", stream=True,
                                         extra_body={"ignore_eos": True})  # fmt: skip
        events = iter(stream)
        first: Any = next(events)
        assert client.responses.retrieve(first.response.id).status == "in_progress"
        assert client.responses.cancel(first.response.id).status == "cancelled"
        last: Any = [*events][-1]
        assert last.type == "response.failed" and last.response.status == "cancelled"
        assert client.responses.retrieve(first.response.id).status == "cancelled"
        with pytest.raises(openai.BadRequestError, match="has ended"):
            client.responses.cancel(first.response.id)


def test_an_engine_that_dies_ends_a_stream_with_failed() -> None:
    with running("--die-after", "4") as server:
        client = of(server)
        stream = client.responses.create(model="toy", input="hello", stream=True,
                                         extra_body={"ignore_eos": True})  # fmt: skip
        events: list[Any] = [*stream]
        assert [event.type for event in events[-2:]] == ["error", "response.failed"]
        assert events[-1].response.error.code == "server_error"


def test_a_file_keeps_answers_when_the_server_ends(tmp_path: Path) -> None:
    options = ("--store", str(tmp_path / "kept"))
    with running(*options, program=SCRIPTED) as server:
        first = ask(of(server), ASK, tools=[RUN])
    with running(*options, program=SCRIPTED) as server:
        assert of(server).responses.retrieve(first.id) == first
        assert ask(of(server), "thanks", previous_response_id=first.id).status == "completed"
