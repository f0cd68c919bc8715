"""What holds for requests of every protocol: a client that leaves cancels its answer, another
model's name is refused, and no request takes longer than it or the server allows."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from mlcc.service.http.types import JSON_TYPE, ApiRequest
from mlcc.service.protocols.responses import input_items
from mlcc.service.response_store.conversations import Conversations, turn_of
from mlcc.service.served_model import OneModel, ServedModel
from mlcc.service.service import Service, _model_of
from mlcc.worker.client import EngineThread, WorkerClient
from tests.helpers.toy.toy_model import open_toy, toy_text

HI = [{"role": "user", "content": "hi"}]
LONG: list[tuple[str, dict[str, Any]]] = [
    ("/v1/chat/completions", {"messages": HI, "max_tokens": 400, "ignore_eos": True}),
    ("/v1/completions", {"prompt": "hi", "max_tokens": 400, "ignore_eos": True}),
    ("/v1/responses", {"input": "hi", "max_output_tokens": 400, "temperature": 0}),
    ("/v1/messages", {"model": "toy", "messages": HI, "max_tokens": 400, "temperature": 0}),
    ("/api/chat", {"messages": HI, "options": {"num_predict": 400, "temperature": 0}}),
    ("/api/generate", {"prompt": "hi", "options": {"num_predict": 400, "temperature": 0}}),
    ("/completion", {"prompt": "hi", "n_predict": 400, "ignore_eos": True}),
    ("/", {"inputs": "hi", "parameters": {"max_new_tokens": 400}}),
]
"""Answers that are long: without an end of the turn, or greedy (a drawn one may end at once)."""
OTHERS: list[tuple[str, dict[str, Any]]] = [
    ("/tokenize", {"content": "hi"}),
    ("/tokenize", {"messages": HI}),
    ("/detokenize", {"tokens": [7]}),
    ("/apply-template", {"messages": HI}),
    ("/v1/responses/input_tokens", {"input": "hi"}),
    ("/v1/messages/count_tokens", {"messages": HI}),
]


def ask(path: str, body: dict[str, Any]) -> ApiRequest:
    async def read() -> bytes:
        return json.dumps(body).encode()

    return ApiRequest("POST", path, {"content-type": JSON_TYPE}, read)


def served(work: Callable[[Service, WorkerClient], Awaitable[None]], delay: float = 0.0) -> None:
    """Run with a service over the toy."""
    process = EngineThread(partial(open_toy, delay))

    async def run() -> None:
        engine = WorkerClient(process, 8)
        engine.start()
        try:
            await work(Service(OneModel(ServedModel(engine, toy_text()))), engine)
        finally:
            engine.stop()

    try:
        asyncio.run(run())
    finally:
        process.close()


async def until(check: Callable[[], bool]) -> None:
    for _ in range(3000):
        if check():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it does not happen")


def test_a_client_that_leaves_a_whole_answer_cancels_it() -> None:
    async def work(service: Service, engine: WorkerClient) -> None:
        for path, body in LONG:
            answering = asyncio.ensure_future(service.answer(ask(path, {**body, "stream": False})))
            await until(lambda: engine.in_flight == 1 or answering.done())  # noqa: B023
            assert engine.in_flight == 1, (path, answering.result().body)
            answering.cancel()
            await asyncio.wait([answering])
            assert engine.in_flight == 0, path

    served(work, delay=0.05)


def test_a_stream_that_is_closed_is_cancelled() -> None:
    async def work(service: Service, engine: WorkerClient) -> None:
        for path, body in LONG:
            response = await service.answer(ask(path, {**body, "stream": True}))
            assert not isinstance(response.body, str), path
            assert await anext(response.body)
            assert engine.in_flight == 1, path
            response.close()
            assert engine.in_flight == 0, path

    served(work, delay=0.05)


def test_another_models_name_is_refused() -> None:
    async def work(service: Service, engine: WorkerClient) -> None:
        for path, body in (*LONG, *OTHERS):
            response = await service.answer(ask(path, {**body, "model": "another"}))
            assert response.status == 404, (path, response.body)

    served(work)


def test_where_a_body_names_its_model() -> None:
    assert _model_of({"model": "a", "name": "b"}) == "a"
    assert _model_of({"model": "", "name": "b"}) == "b"
    for body in ({}, [], None, {"model": ""}, {"model": 5}, {"name": [1]}):
        assert _model_of(body) is None


def test_the_shorter_of_two_times_counts() -> None:
    engine = SimpleNamespace()
    one = ServedModel(engine, toy_text())  # type: ignore[arg-type]
    one._bounds = replace(one._bounds, timeout_s=50)
    now, request = time.monotonic(), ask("/v1/completions", {})
    for wanted, most in ((None, 50), (100, 50), (20, 20)):
        left = one.clock(request, now, wanted)()
        assert left is not None and most - 5 < left <= most
    assert one.clock(request, now - 60, None)() == 0.0
    batch = replace(request, background=True)
    assert one.clock(batch, now - 60, None)() is None, "a line of a batch may wait"
    assert one.clock(batch, now - 60, 20)() == 0.0
    one._bounds = replace(one._bounds, timeout_s=None)
    assert one.clock(request, now, None)() is None


@pytest.mark.parametrize(
    ("query", "ids", "more"),
    [
        ("", ["c", "b", "a"], False),
        ("order=asc", ["a", "b", "c"], False),
        ("limit=1", ["c"], True),
        ("limit=2&order=asc", ["a", "b"], True),
        ("limit=3", ["c", "b", "a"], False),
        ("limit=100", ["c", "b", "a"], False),
        ("after=c", ["b", "a"], False),
        ("after=c&limit=1", ["b"], True),
        ("after=a", [], False),
    ],
)
def test_items_come_in_pages(query: str, ids: list[str], more: bool) -> None:
    async def work() -> dict[str, Any]:
        conversations = Conversations()
        given = [{"id": name, "type": "message"} for name in "abc"]
        turn = turn_of({"id": "resp_1", "output": []}, given, None)
        await conversations.keep("", "resp_1", turn)
        request = ApiRequest("GET", "", query=query, parameters={"name": "resp_1"})
        models = SimpleNamespace(conversations=conversations)
        return dict(json.loads(str((await input_items(models, request)).body)))  # type: ignore[arg-type]

    page = asyncio.run(work())
    assert [item["id"] for item in page["data"]] == ids and page["has_more"] is more
    assert (page["first_id"], page["last_id"]) == ((ids[0], ids[-1]) if ids else (None, None))
