"""Large bodies are parsed in another process and checked in a thread: what the event loop's own
thread does for a body is bounded in bytes, whatever the address."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import resource
import signal
import threading
import weakref
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mlcc.api.openai import responses
from mlcc.api.openai.logprobs import completion_logprobs
from mlcc.api.openai_responses import request as responses_request
from mlcc.api.openai_responses.item_fields import known
from mlcc.api.schema.tool_fields import Tool
from mlcc.engine.sampling.grammar import Structure
from mlcc.errors import CapacityError, InvalidRequestError
from mlcc.model.structured_output.schema_keywords import LEVELS, relaxed
from mlcc.server.prompts import body_reader, chunked_pickle
from mlcc.server.prompts.body_reader import MEMORY_BYTES, SMALL, BodyOffload, BodyReader
from mlcc.service import schemas, served_model
from mlcc.service.http import json_pieces, sse, types
from mlcc.service.http.json_body import MAX_NUMBERS, MAX_VALUES, parse_json
from mlcc.service.http.json_pieces import json_text
from mlcc.service.http.types import JSON_TYPE, ApiRequest, ApiResponse, LongText, Whole, to_json
from mlcc.service.protocols import tokens
from mlcc.service.schemas import enforceable
from mlcc.service.served_model import OneModel, ServedModel
from mlcc.service.service import Service
from mlcc.worker.client import EngineThread, WorkerClient
from tests.helpers.toy.toy_model import open_toy, toy_text

MANY = [{"role": "user", "content": "a"}] * 5000
UNKNOWN = {f"field{number}": 0 for number in range(20_000)}
IDS = [7] * 60_000
LARGE: list[tuple[str, dict[str, Any]]] = [
    ("/v1/chat/completions", {"messages": MANY}),
    ("/v1/chat/completions", {"messages": MANY[:1], **UNKNOWN}),
    ("/v1/completions", {"prompt": IDS}),
    ("/v1/responses", {"input": MANY}),
    ("/v1/responses/input_tokens", {"input": MANY}),
    ("/v1/messages", {"model": "toy", "max_tokens": 1, "messages": MANY}),
    ("/v1/messages/count_tokens", {"model": "toy", "messages": MANY}),
    ("/v1/embeddings", {"input": ["a"] * 2000, **UNKNOWN}),
    ("/api/chat", {"messages": MANY}),
    ("/api/generate", {"prompt": "a", **UNKNOWN}),
    ("/api/embed", {"input": ["a"] * 2000, **UNKNOWN}),
    ("/completion", {"prompt": IDS}),
    ("/tokenize", {"messages": MANY}),
    ("/detokenize", {"tokens": IDS}),
    ("/apply-template", {"messages": MANY}),
]


class Watch:
    """What the loop's own thread parsed (bytes of each body), and how often it checked one."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.parsed: list[int] = []
        self.checked = 0
        self.in_threads = 0
        self.known = 0
        """Values of a /v1/responses body that the loop's thread prepared to be stored."""
        check = served_model._checked

        def parse(body: bytes) -> Any:
            self.parsed.append(len(body))
            return parse_json(body)

        def checked(*arguments: Any) -> Any:
            here = threading.current_thread() is threading.main_thread()
            self.checked += here
            self.in_threads += not here
            return check(*arguments)

        def storable(kind: Any, value: Any) -> Any:
            self.known += threading.current_thread() is threading.main_thread()
            return known(kind, value)

        monkeypatch.setattr(body_reader, "parse_json", parse)
        monkeypatch.setattr(responses_request, "known", storable)
        monkeypatch.setattr(served_model, "_checked", checked)


@pytest.fixture
def reader() -> Iterator[BodyReader]:
    made = BodyReader(1)
    yield made
    made.close()


def answers(reader: BodyReader, asked: list[tuple[str, dict[str, Any]]]) -> list[ApiResponse]:
    """The response of one service over the toy to each body, in turn."""

    async def work(process: EngineThread) -> list[ApiResponse]:
        engine = WorkerClient(process, 8)
        engine.start()
        service, found = Service(OneModel(ServedModel(engine, toy_text()))), []
        for path, body in asked:
            raw = json.dumps({"stream": False, **body}).encode()

            async def read(raw: bytes = raw) -> bytes:
                return raw

            headers = {"content-type": JSON_TYPE}
            offload = BodyOffload(reader)
            request = ApiRequest("POST", path, headers, read, offload=offload)
            response = await service.answer(request)
            if not isinstance(response.body, Whole):
                response = replace(response, body="".join([line async for line in response.body]))
            found.append(response)
        engine.stop()
        return found

    process = EngineThread(open_toy)
    try:
        return asyncio.run(work(process))
    finally:
        process.close()


def test_the_loop_parses_and_checks_no_large_body(
    reader: BodyReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = Watch(monkeypatch)
    for (path, _), response in zip(LARGE, answers(reader, LARGE), strict=True):
        assert response.status in (200, 400, 404), (path, response.body)
        assert "internal" not in str(response.body), (path, response.body)
    assert watch.parsed == [] and watch.checked == 0 and watch.known == 0
    assert watch.in_threads >= len(LARGE) - 2  # an encoder's addresses are refused before


def test_small_bodies_start_no_process(reader: BodyReader, monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Watch(monkeypatch)
    body = {"messages": MANY[:1], "max_tokens": 1}
    (response,) = answers(reader, [("/v1/chat/completions", body)])
    assert response.status == 200 and watch.checked == 1 and reader._pool is None
    assert watch.parsed and max(watch.parsed) <= SMALL


def test_where_large_begins(reader: BodyReader) -> None:
    assert asyncio.run(BodyOffload(reader).parse(b" " * (SMALL - 2) + b"[]")) == []
    assert reader._pool is None
    assert asyncio.run(BodyOffload(reader).parse(b" " * (SMALL - 1) + b"[]")) == []
    assert reader._pool is not None


def test_a_process_that_parses_has_bounded_memory_and_leaves_ctrl_c_to_the_server(
    reader: BodyReader,
) -> None:
    pool = reader._opened()
    most, _ = pool.submit(resource.getrlimit, resource.RLIMIT_AS).result()
    assert MEMORY_BYTES < most < 4 * MEMORY_BYTES
    statm = pool.submit(Path("/proc/self/statm").read_text, "ascii").result()
    virtual, resident, *_ = (int(pages) * resource.getpagesize() for pages in statm.split())
    beyond = most - MEMORY_BYTES
    assert abs(beyond - virtual) < abs(beyond - resident), "addresses are what the system bounds"
    assert pool.submit(signal.getsignal, signal.SIGINT).result() == signal.SIG_IGN


def test_large_answers_are_those_of_small_bodies(reader: BodyReader) -> None:
    """Spaces make the same request large."""
    body = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 4, "seed": 1}
    padded = {**body, "user": "x" * SMALL}
    small, large = answers(reader, [("/v1/chat/completions", b) for b in (body, padded)])
    texts = [json.loads(str(r.body))["choices"] for r in (small, large)]
    assert texts[0] == texts[1]


def test_too_many_values_are_refused_before_they_are_parsed(reader: BodyReader) -> None:
    for body in (
        b"[" + b"true," * MAX_VALUES + b"true]",
        b"[" + b" 12 ," * MAX_NUMBERS + b"-1.5e3]",
        b"{" + b'"a":0,' * MAX_VALUES + b'"a":0}',
        b"[" + b"{}," * MAX_VALUES + b"{}]",
    ):
        with pytest.raises(InvalidRequestError, match=f"{MAX_NUMBERS} are the most") as caught:
            asyncio.run(BodyOffload(reader).parse(body))
        assert caught.value.code == "too_many_values"
    numbers = b"[" + b"1," * (MAX_NUMBERS - 1) + b"1]"
    assert asyncio.run(BodyOffload(reader).parse(numbers)) == [1] * MAX_NUMBERS
    text = json.dumps(["," * MAX_VALUES]).encode()  # letters of a string are no values
    assert asyncio.run(BodyOffload(reader).parse(text)) == ["," * MAX_VALUES]


def test_no_pickle_of_a_large_value_has_a_long_list(
    reader: BodyReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What one call of C unpickles is bounded, and none is unpickled by the loop's thread."""
    value = {"prompt": IDS, "rows": [IDS, [[], {}, "a"]], "messages": MANY[:2] * 9000, "n": None}
    lengths, in_loop = list[int](), list[int]()
    load = chunked_pickle._Unpickler.load

    def measured(self: Any) -> Any:
        in_loop.append(threading.current_thread() is threading.main_thread())
        found = load(self)
        lengths.append(len(found) if isinstance(found, list) else 0)
        return found

    monkeypatch.setattr(chunked_pickle._Unpickler, "load", measured)
    found = asyncio.run(BodyOffload(reader).parse(json.dumps(value).encode()))
    assert found == value
    whole = [len(IDS), len(IDS), 18_000]
    pieces = sum(-(-length // chunked_pickle.CHUNK) for length in whole)
    assert len(lengths) == pieces + 1 and max(lengths) <= chunked_pickle.CHUNK
    assert not any(in_loop)


def test_no_answer_to_a_large_body_is_written_in_the_loop(
    reader: BodyReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """/tokenize answers 4 MB of text with a million ids, which took 1.5 s."""
    in_loop, in_threads = list[int](), list[int]()

    def measured(value: Any) -> LongText:
        here = threading.current_thread() is threading.main_thread()
        (in_loop if here else in_threads).append(1)
        return json_text(value)

    monkeypatch.setattr(tokens, "json_text", measured)
    text = "ab" * SMALL
    bodies = [
        ("/tokenize", {"content": text}),
        ("/tokenize", {"prompt": text, "return_token_strs": True}),
        ("/detokenize", {"tokens": IDS}),
    ]
    found = answers(reader, bodies)
    assert [response.status for response in found] == [200, 200, 200]
    assert not in_loop and len(in_threads) == 3
    ids = json.loads(str(found[0].body))["tokens"]
    (again,) = answers(reader, [("/detokenize", {"tokens": ids})])
    assert json.loads(str(again.body))["content"] == text


@pytest.mark.parametrize("stream", [False, True])
def test_no_long_answer_is_translated_or_written_in_the_loop(
    reader: BodyReader, monkeypatch: pytest.MonkeyPatch, stream: bool
) -> None:
    """The log-probabilities of 1,500 echoed tokens took the loop 48 ms."""
    in_loop, in_threads = list[int](), list[int]()

    def count(tokens: int) -> None:
        here = threading.current_thread() is threading.main_thread()
        (in_loop if here else in_threads).append(tokens)

    def translated(*arguments: Any, **more: Any) -> Any:
        found = completion_logprobs(*arguments, **more)
        count(len(found["tokens"]))
        return found

    def written(value: Any) -> str:
        text = to_json(value)
        count(text.count("{"))
        return text

    monkeypatch.setattr(responses, "completion_logprobs", translated)
    for module in (types, sse, json_pieces):
        monkeypatch.setattr(module, "to_json", written)
    body = {"prompt": "a" * 400, "echo": True, "logprobs": 5, "max_tokens": 1, "stream": stream}
    (response,) = answers(reader, [("/v1/completions", body)])
    assert response.status == 200
    parts = str(response.body).split("\n\n") if stream else [str(response.body)]
    chunks = [json.loads(part.removeprefix("data: ")) for part in parts if "choices" in part]
    assert len(chunks[0]["choices"][0]["logprobs"]["tokens"]) in (400, 401)
    assert max(in_threads) >= 400
    assert not in_loop or max(in_loop) < 64


def test_a_process_that_dies_is_replaced(reader: BodyReader) -> None:
    body = json.dumps(["x" * SMALL]).encode()

    async def work() -> None:
        await reader.parse(body)
        assert reader._pool is not None
        for process in reader._pool._processes.values():
            os.kill(process.pid or 0, signal.SIGKILL)
        assert await reader.parse(body) == json.loads(body)

    asyncio.run(work())


class Breaking:
    """A pool whose processes die of another body."""

    def __init__(self) -> None:
        self.closed = False

    def submit(self, *work: Any) -> Any:
        raise BrokenProcessPool

    def shutdown(self, wait: bool) -> None:
        self.closed = not wait


def test_no_body_is_refused_for_what_another_did(
    reader: BodyReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many share its processes, the last try is alone."""
    broken = Breaking()
    monkeypatch.setattr(reader, "_opened", lambda: broken)
    body = json.dumps(["x" * SMALL]).encode()

    async def work() -> None:
        assert (
            await asyncio.gather(*(reader.parse(body) for _ in range(2))) == [json.loads(body)] * 2
        )

    asyncio.run(work())
    assert broken.closed and reader._alone._value == 1


def test_closing_waits_for_no_body(reader: BodyReader) -> None:
    """The event loop answers others meanwhile."""

    async def work() -> None:
        parsing = asyncio.ensure_future(reader.parse(json.dumps(["x" * SMALL]).encode()))
        await asyncio.sleep(0)
        pool = reader._pool
        assert pool is not None
        reader.close()
        assert pool._pending_work_items, "its process has just been started"
        assert reader._pool is None
        reader.close()
        await parsing

    asyncio.run(work())


def test_a_body_that_kills_each_process_is_refused(
    reader: BodyReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(body_reader, "_parse", os._exit)
    with pytest.raises(CapacityError) as caught:
        asyncio.run(reader.parse(1))  # type: ignore[arg-type]
    assert caught.value.code == "body_too_costly"


class Refusing:
    """Prompts that can enforce no schema."""

    async def structure(self, structure: Structure, seconds: float | None) -> None:
        raise InvalidRequestError("not this one", code="invalid_structure")


@pytest.mark.parametrize("large", [True, False])
def test_the_schemas_of_a_large_body_are_not_reduced_in_the_loop(
    reader: BodyReader, monkeypatch: pytest.MonkeyPatch, large: bool
) -> None:
    """15,000 properties took the loop 190 ms."""
    in_loop = list[bool]()

    def measured(*arguments: Any) -> Any:
        in_loop.append(threading.current_thread() is threading.main_thread())
        return relaxed(*arguments)

    monkeypatch.setattr(schemas, "relaxed", measured)
    offload = BodyOffload(reader)
    offload._is_large = large
    schema = {"type": "object", "properties": {"a": {"type": "string", "pattern": "^(?=a)"}}}
    text: Any = SimpleNamespace(grammars=object())
    structure = Structure("json_schema", json.dumps(schema), "response_format", strict=False)
    tool = Tool("f", schema, field="tools[0]")
    prompts: Any = Refusing()

    async def work() -> None:
        with pytest.raises(InvalidRequestError, match="not this one"):
            await enforceable(text, prompts, structure, lambda: None, offload)
        assert in_loop == [not large] * LEVELS
        fitted = schemas.ToolSchemas([tool], prompts, lambda: None, True, offload)
        found = [tools[0].parameters async for tools, _ in fitted.candidates()]
        assert [each == {"type": "object"} for each in found] == [False, True, True]

    asyncio.run(work())
    assert len(in_loop) > LEVELS + 1 and {*in_loop} == {not large}


def test_a_refused_body_is_freed_without_a_collection(reader: BodyReader) -> None:
    """In a server those wait, and a body may have megabytes."""

    async def refused() -> weakref.ref[Any]:
        try:
            await reader.parse(b"[" * 200)
        except InvalidRequestError as error:
            return weakref.ref(error)
        raise AssertionError

    gc.collect()
    gc.disable()
    try:
        assert asyncio.run(refused())() is None
    finally:
        gc.enable()


def test_a_process_that_dies_while_it_is_started_costs_no_body(
    reader: BodyReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit, failed = ProcessPoolExecutor.submit, list[int]()

    def broken_once(self: ProcessPoolExecutor, *arguments: Any) -> Any:
        if not failed:
            failed.append(1)
            raise BrokenPipeError
        return submit(self, *arguments)

    monkeypatch.setattr(ProcessPoolExecutor, "submit", broken_once)
    assert asyncio.run(reader.parse(b"[1]")) == [1] and failed
