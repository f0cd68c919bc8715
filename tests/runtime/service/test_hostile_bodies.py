"""Hostile bodies: each is refused with the field's name, and none causes a failure."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any

import pytest

from mlcc.errors import InvalidRequestError
from mlcc.service.http.types import JSON_TYPE, ApiRequest
from mlcc.service.protocols.responses import input_items
from mlcc.service.response_store.conversations import Conversations, turn_of
from mlcc.service.response_store.store import MemoryResponseStore, Turn
from mlcc.service.served_model import OneModel, ServedModel
from mlcc.service.service import Service
from mlcc.worker.client import EngineThread, WorkerClient
from tests.helpers.toy.toy_model import open_toy, toy_text

CHAT, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/responses", "/v1/messages"
PLAIN: Any = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 2}
DEEP = "[" * 100_000
FUNCTION = {"type": "function", "name": "f"}


def answers(*asked: tuple[str, str, str]) -> list[tuple[int, Any]]:
    """Status and body of each, of one service over the toy, in order."""

    async def work(process: EngineThread) -> list[tuple[int, Any]]:
        engine = WorkerClient(process, 8)
        engine.start()
        service, found = Service(OneModel(ServedModel(engine, toy_text()))), []
        for method, path, raw in asked:

            async def read(raw: str = raw) -> bytes:
                return raw.encode()

            place, _, query = path.partition("?")
            request = ApiRequest(method, place, {"content-type": JSON_TYPE}, read, query=query)
            response = await service.answer(request)
            assert isinstance(response.body, str)
            found.append((response.status, json.loads(response.body.encode())))
            assert engine.in_flight == 0
        engine.stop()
        return found

    process = EngineThread(open_toy)
    try:
        return asyncio.run(work(process))
    finally:
        process.close()


def function(parameters: Any) -> Any:
    return {"type": "function", "function": {"name": "f", "parameters": parameters}}


def of_schema(schema: Any) -> Any:
    return {"type": "json_schema", "schema": schema}


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        (RESPONSES, {"input": "x", "user": float("1e999")}, "user"),
        (RESPONSES, {"input": "x", "user": "\ud800"}, "user"),
        (RESPONSES, {"input": "x", "metadata": {"\ud800": "x"}}, "metadata.\\ud800"),
        (RESPONSES, {"input": [{"role": "user", "content": "x", "z": "\ud800"}]}, "input[0].z"),
        (RESPONSES, {"input": "x", "tools": [{"type": "web", "z": [1, "\ud800"]}]},
         "tools[0].z[1]"),
        (RESPONSES, {"input": "x", "text": {"format": of_schema("foo")}}, None),
        (RESPONSES, {"input": "x", "text": {"format": of_schema(DEEP)}}, None),
        (RESPONSES, {"input": "x", "tools": [FUNCTION], "text": {"format": of_schema(DEEP)}}, None),
        (MESSAGES, {"model": "toy", **PLAIN, "output_config": {"format": of_schema("foo")}}, None),
        (MESSAGES, {"model": "toy", **PLAIN, "output_format": of_schema(DEEP)}, None),
        (CHAT, {**PLAIN, "tools": [{"type": "function", "function": {"name": "f"}}],
                "response_format": {"type": "json_schema", "json_schema": {"schema": DEEP}}}, None),
        (CHAT, {**PLAIN, "tools": [function({"properties": 5})]},
         "tools[0].function.parameters.properties"),
        (CHAT, {**PLAIN, "tools": [function({"properties": {}, "required": 5})]},
         "tools[0].function.parameters.required"),
        (CHAT, {**PLAIN, "tools": [function({"properties": {"a": {"type": "string", "enum": 5}}})]},
         "tools[0].function.parameters.properties.a.enum"),
        (CHAT, {**PLAIN, "chat_template_kwargs": {"self": 1}}, "chat_template_kwargs"),
    ],
)  # fmt: skip
def test_is_refused_by_name(path: str, body: Any, param: str | None) -> None:
    raw = json.dumps(body).replace("Infinity", "1e999")
    ((status, answer),) = answers(("POST", path, raw))
    assert status == 400
    if param is not None:
        assert answer["error"]["param"] == param


@pytest.mark.parametrize("limit", ["0", "101", "00000000199999", "0" * 5000, "-1", "x"])
def test_how_many_items_are_listed(limit: str) -> None:
    async def work() -> int:
        conversations = Conversations()
        await conversations.keep("", "resp_1", turn_of({"id": "resp_1", "output": []}, [], None))
        served = SimpleNamespace(conversations=conversations)
        request = ApiRequest("GET", "", query=f"limit={limit}", parameters={"name": "resp_1"})
        with pytest.raises(InvalidRequestError) as error:
            await input_items(served, request)  # type: ignore[arg-type]
        return error.value.http_status

    assert asyncio.run(work()) == 400


def test_an_item_is_referred_to_once_and_its_answer_read_once() -> None:
    class Counted(MemoryResponseStore):
        reads = 0

        async def get(self, tenant: str, name: str) -> Turn | None:
            self.reads += 1
            return await super().get(tenant, name)

    async def work() -> None:
        kept = Counted()
        conversations = Conversations(kept)
        given = [{"id": f"item_a1_{i}", "type": "message"} for i in range(50)]
        turn = turn_of({"id": "resp_a1", "output": []}, given, None)
        await conversations.keep("t", "resp_a1", turn)
        asked = [{"type": "item_reference", "id": item["id"]} for item in given]
        loading = conversations.loading()
        assert await conversations.resolved("t", asked, loading) == given
        assert kept.reads == 1
        assert await conversations.resolved("u", asked, loading) == asked, "it is another tenant's"
        with pytest.raises(InvalidRequestError, match="twice"):
            await conversations.resolved("t", [*asked, asked[0]], loading)

    asyncio.run(work())
