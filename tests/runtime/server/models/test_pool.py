"""Several models in one server: loading, eviction, and the state of evicted models.

The models are toys in real processes; their memory is a number, so that decisions are equal
everywhere.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from mlcc.api.errors import BusyError, NotFoundError, SleepingError
from mlcc.errors import CapacityError, DeviceError
from mlcc.server.models.pool import ModelPool
from mlcc.server.models.sources import Needs, Source, with_names
from mlcc.service.http.types import ApiRequest, ApiResponse
from mlcc.service.served_model import ServiceBounds
from mlcc.service.service import Service
from tests.helpers.toy.toy_model import toy_text
from tests.runtime.server.helpers.openers import open_counted
from tests.runtime.server.helpers.server_process import alive

BYTES = 10
"""Memory that a toy model needs."""


def opened(folder: Path) -> list[int]:
    file = folder / "opened"
    return [int(line) for line in file.read_text().split()] if file.exists() else []


def fits(room: int) -> None:
    if room < BYTES:
        raise CapacityError(f"the toy needs {BYTES} bytes and {room} are free")


def source(place: Path, name: str, *aliases: str) -> Source:
    folder = place / name
    folder.mkdir()
    return Source(
        name=name,
        context=512,
        device="toy",
        needs=Needs(BYTES, BYTES),
        fits=fits,
        opener=lambda granted: partial(open_counted, str(folder)),
        open_text=toy_text,
        room=lambda: None,
        aliases=aliases,
    )


@asynccontextmanager
async def pool_of(
    sources: list[Source], total: int | None, timeout_s: float = 60
) -> AsyncIterator[ModelPool]:
    bounds = ServiceBounds(timeout_s=timeout_s)
    pool = ModelPool(sources, {"toy": total}, bounds, 64)
    try:
        yield pool
    finally:
        await pool.close()


def states(pool: ModelPool) -> dict[str, str]:
    return {entry.name: entry.state for entry in pool.entries()}


async def until(check: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not check():
        assert time.monotonic() < end
        await asyncio.sleep(0.01)


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(work)


async def ask(service: Service, body: dict[str, Any], path: str = "/v1/chat/completions") -> Any:
    response = await post(service, body, path)
    assert isinstance(response.body, str)
    return json.loads(response.body)


async def post(service: Service, body: dict[str, Any], path: str) -> ApiResponse:
    async def read() -> bytes:
        return json.dumps(body).encode()

    return await service.answer(
        ApiRequest("POST", path, {"content-type": "application/json"}, read)
    )


async def of_query(service: Service, body: dict[str, Any], path: str, query: str) -> Any:
    async def read() -> bytes:
        return json.dumps(body).encode()

    headers = {"content-type": "application/json"}
    response = await service.answer(ApiRequest("POST", path, headers, read, query=query))
    return json.loads(str(response.body))


async def get(service: Service, path: str) -> ApiResponse:
    async def read() -> bytes:
        return b""

    return await service.answer(ApiRequest("GET", path, {}, read))


CHAT: dict[str, Any] = {
    "messages": [{"role": "user", "content": "hi"}],
    "max_tokens": 3,
    "ignore_eos": True,
}


def test_the_first_requests_load_a_model_once(tmp_path: Path) -> None:
    async def work() -> None:
        async with pool_of([source(tmp_path, "a", "gpt-4o"), source(tmp_path, "b")], None) as pool:
            service = Service(pool)
            answers = await asyncio.gather(
                *(ask(service, {**CHAT, "model": name}) for name in ("a", "gpt-4o", "a"))
            )
            assert [answer["model"] for answer in answers] == ["a", "gpt-4o", "a"]
            assert len(opened(tmp_path / "a")) == 1
            assert states(pool) == {"a": "loaded", "b": "unloaded"}
            assert pool.entry("gpt-4o").name == "a" and pool.entry("a").aliases == ("gpt-4o",)

    run(work())


def test_the_least_recently_used_makes_room_and_none_that_answers(tmp_path: Path) -> None:
    async def work() -> None:
        sources = [source(tmp_path, name) for name in "abc"]
        async with pool_of(sources, 2 * BYTES) as pool:
            held = await pool.lease("a")
            (await pool.lease("b")).release()
            (await pool.lease("c")).release()  # `a` is older, and is held
            assert states(pool) == {"a": "loaded", "b": "unloaded", "c": "loaded"}
            assert not alive(opened(tmp_path / "b")[0]), "its memory is free"
            second = await pool.lease("c")
            waiting = asyncio.ensure_future(pool.lease("b"))
            for _ in range(20):  # it waits for memory
                await asyncio.sleep(0)
            assert not waiting.done()
            with pytest.raises(BusyError, match="'a' is being loaded or answers"):
                await pool.unload("a")
            second.release()
            (await waiting).release()
            assert states(pool) == {"a": "loaded", "b": "loaded", "c": "unloaded"}
            held.release()
            held.release()  # more often than once means nothing
            assert (await pool.unload("a")).state == "unloaded"

    run(work())


def test_a_request_that_waits_for_memory_too_long_is_refused_with_the_models_that_have_it(
    tmp_path: Path,
) -> None:
    async def work() -> None:
        sources = [source(tmp_path, name) for name in "ab"]
        async with pool_of(sources, BYTES, timeout_s=0.01) as pool:
            held = await pool.lease("a")
            with pytest.raises(BusyError, match="no memory for 'b' while a answer"):
                await pool.lease("b")
            held.release()

    run(work())


def test_a_model_that_never_fits(tmp_path: Path) -> None:
    async def work() -> None:
        async with pool_of([source(tmp_path, "a")], BYTES - 1) as pool:
            with pytest.raises(CapacityError, match="needs 10 bytes and 9 are free"):
                await pool.lease("a")
            assert states(pool) == {"a": "unloaded"} and not opened(tmp_path / "a")

    run(work())


def test_a_load_that_fails_fails_its_requests(tmp_path: Path) -> None:
    async def work() -> None:
        async with pool_of([source(tmp_path, "a"), source(tmp_path, "b")], 2 * BYTES) as pool:
            (tmp_path / "a" / "shut").touch()
            first, second, other = await asyncio.gather(
                *(pool.lease(name) for name in "aab"), return_exceptions=True
            )
            for error in (first, second):
                assert isinstance(error, DeviceError) and "is shut" in error.message
            assert not isinstance(other, BaseException)
            assert len(opened(tmp_path / "a")) == 1
            (tmp_path / "a" / "shut").unlink()
            (await pool.lease("a")).release()
            assert states(pool) == {"a": "loaded", "b": "loaded"}

    run(work())


def test_a_load_without_waiting_requests_leaves_nothing(tmp_path: Path) -> None:
    async def work() -> None:
        async with pool_of([source(tmp_path, "a"), source(tmp_path, "b")], BYTES) as pool:
            (tmp_path / "a" / "held").touch()
            asking = [asyncio.ensure_future(pool.lease("a")) for _ in range(2)]
            await until(lambda: bool(opened(tmp_path / "a")))
            asking[0].cancel()
            await asyncio.wait([asking[0]])
            assert states(pool)["a"] == "loading", "somebody waits still"
            asking[1].cancel()
            await until(lambda: states(pool)["a"] == "unloaded")
            assert not alive(opened(tmp_path / "a")[0])
            (await pool.lease("b")).release()  # the memory is there again

    run(work())


def test_the_list_of_models_says_how_much_of_one_has_been_read(tmp_path: Path) -> None:
    async def work() -> None:
        async with pool_of([source(tmp_path, "a"), source(tmp_path, "b")], None) as pool:
            service = Service(pool)
            (tmp_path / "a" / "held").touch()
            asking = asyncio.ensure_future(pool.lease("a"))
            await until(lambda: pool.entry("a").progress is not None)
            body = (await get(service, "/v1/models")).body
            assert isinstance(body, str)
            listed = json.loads(body)["data"]
            assert [(row["state"], row["progress"]) for row in listed] == [
                ("loading", 0.43),
                ("unloaded", None),
            ]
            (tmp_path / "a" / "held").unlink()
            (await asking).release()
            assert (pool.entry("a").state, pool.entry("a").progress) == ("loaded", None)

    run(work())


def test_the_server_ends_while_a_model_is_loaded(tmp_path: Path) -> None:
    async def work() -> None:
        async with pool_of([source(tmp_path, "a")], None) as pool:
            (tmp_path / "a" / "held").touch()
            asking = asyncio.ensure_future(pool.lease("a"))
            await until(lambda: bool(opened(tmp_path / "a")))
        with pytest.raises(Exception, match="the server is shutting down"):
            await asking
        assert not alive(opened(tmp_path / "a")[0])

    run(work())


def test_what_names_no_model_or_an_unknown_one(tmp_path: Path) -> None:
    async def work() -> None:
        async with pool_of([source(tmp_path, "a"), source(tmp_path, "b")], None) as pool:
            service = Service(pool)
            error = (await ask(service, CHAT))["error"]
            assert error["param"] == "model" and "say which: 'a', 'b'" in error["message"]
            error = (await ask(service, {**CHAT, "model": "c"}))["error"]
            assert error["code"] == "model_not_found" and "there are 'a', 'b'" in error["message"]
            with pytest.raises(NotFoundError):
                pool.entry("c")

    run(work())


def test_a_model_is_named_in_the_query_or_the_path(tmp_path: Path) -> None:
    """By clients of TGI, which name none in the body, and of KServe's protocol."""

    async def work() -> None:
        async with pool_of([source(tmp_path, "a"), source(tmp_path, "b")], None) as pool:
            service, body = Service(pool), {"inputs": "hi", "parameters": {"max_new_tokens": 3}}
            for path in ("/generate", "/"):
                assert "'model' is missing" in (await of_query(service, body, path, ""))["error"]
            found = await of_query(service, body, "/generate", "model=b")
            assert found["generated_text"] and states(pool) == {"a": "unloaded", "b": "loaded"}
            (same,) = await of_query(service, {**body, "model": "b"}, "/", "model=a")
            assert same == found, "the body's comes first"
            text = {"text_input": "hi", "max_tokens": 3}
            named = await ask(service, text, "/v2/models/a/generate")
            assert (named["model_name"], states(pool)["a"]) == ("a", "loaded")
            assert "no model 'c'" in (await ask(service, text, "/v2/models/c/generate"))["error"]

    run(work())


def test_a_stream_keeps_its_model_until_it_is_closed(tmp_path: Path) -> None:
    async def work() -> None:
        async with pool_of([source(tmp_path, "a")], None) as pool:
            service = Service(pool)
            body = {**CHAT, "model": "a", "stream": True, "max_tokens": 400}
            response = await post(service, body, "/v1/chat/completions")
            assert not isinstance(response.body, str)
            await response.body.__anext__()
            refused = await ask(service, {"model": "a"}, "/models/unload")
            assert refused["error"]["code"] == "model_busy"
            response.close()
            unloaded = await ask(service, {"model": "a"}, "/models/unload")
            assert (unloaded["id"], unloaded["state"]) == ("a", "unloaded")
            loaded = await ask(service, {"model": "a"}, "/models/load")
            assert (loaded["state"], loaded["requests"]) == ("loaded", 0)

    run(work())


async def of_response(service: Service, method: str, path: str) -> Any:
    async def nothing() -> bytes:
        return b""

    response = await service.answer(ApiRequest(method, f"/v1/responses/{path}", {}, nothing))
    assert isinstance(response.body, str)
    return json.loads(response.body)


def test_answers_are_found_whichever_model_is_loaded(tmp_path: Path) -> None:
    async def work() -> None:
        async with pool_of([source(tmp_path, name) for name in "ab"], None) as pool:
            service = Service(pool)
            body = {"model": "a", "input": "hi", "stream": True, "max_output_tokens": 400}
            stream = await post(service, {**body, "ignore_eos": True}, "/v1/responses")
            assert not isinstance(stream.body, str)
            begun = await stream.body.__anext__()
            name = json.loads(begun.partition("data: ")[2])["response"]["id"]
            await ask(service, {**CHAT, "model": "b"})  # the one that was asked last
            assert (await of_response(service, "GET", name))["status"] == "in_progress"
            cancelled = await of_response(service, "POST", f"{name}/cancel")
            assert cancelled["status"] == "cancelled"
            stream.close()
            kept = {"model": "a", "input": "hi", "max_output_tokens": 3, "ignore_eos": True}
            name = (await ask(service, kept, "/v1/responses"))["id"]
            for model in "ab":
                await pool.unload(model)
            assert (await of_response(service, "GET", name))["id"] == name
            assert states(pool) == {"a": "unloaded", "b": "unloaded"}

    run(work())


def test_asleep_no_model_is_loaded_and_awake_the_next_request_loads_one(tmp_path: Path) -> None:
    async def work() -> None:
        async with pool_of([source(tmp_path, "a"), source(tmp_path, "b")], None) as pool:
            service, body = Service(pool), {**CHAT, "model": "a", "temperature": 0}
            first = await ask(service, body)
            (tmp_path / "b" / "held").touch()
            loading = asyncio.ensure_future(ask(service, {**CHAT, "model": "b"}))
            await until(lambda: len(opened(tmp_path / "b")) == 1)
            assert (await post(service, {}, "/sleep")).status == 200
            assert (await loading)["error"]["code"] == "sleeping"
            for folder in "ab":
                assert not alive(opened(tmp_path / folder)[0]), "its memory is free"
            assert states(pool) == {"a": "sleeping", "b": "sleeping"}
            assert (await post(service, body, "/v1/chat/completions")).status == 503
            assert (await post(service, body, "/models/load")).status == 503
            assert (await get(service, "/ready")).status == 503
            (tmp_path / "b" / "held").unlink()
            assert (await post(service, {}, "/wake_up")).status == 200
            assert states(pool) == {"a": "unloaded", "b": "unloaded"}
            assert (await ask(service, body))["choices"] == first["choices"]

    run(work())


def test_a_sleep_that_waits_lets_requests_finish(tmp_path: Path) -> None:
    async def work() -> None:
        async with pool_of([source(tmp_path, "a")], None) as pool:
            lease = await pool.lease("a")
            sleeping = asyncio.ensure_future(pool.sleep(wait=True))
            await until(lambda: pool.asleep)
            with pytest.raises(SleepingError):
                await pool.lease("a")
            assert not sleeping.done() and alive(opened(tmp_path / "a")[0])
            lease.release()
            await sleeping
            assert not alive(opened(tmp_path / "a")[0])

    run(work())


def test_closing_twice_waits_twice(tmp_path: Path) -> None:
    async def work() -> None:
        async with pool_of([source(tmp_path, name) for name in "ab"], None) as pool:
            for name in "ab":
                (await pool.lease(name)).release()
            processes = [pid for name in "ab" for pid in opened(tmp_path / name)]
            first = asyncio.ensure_future(pool.close())
            await asyncio.sleep(0)
            await pool.close()
            assert not [pid for pid in processes if alive(pid)]
            await first

    run(work())


def test_models_of_one_name_are_named_after_their_folders(tmp_path: Path) -> None:
    model = source(tmp_path, "demo")
    named = with_names({"a/fast": model, "b/small": model, "c/other": replace(model, name="x")}, [])
    assert [each.name for each in named] == ["fast", "small", "x"]
    cached = with_names({"compiled/demo-1f/model": model, "compiled/demo-2e/model": model}, [])
    assert [each.name for each in cached] == ["demo-1f", "demo-2e"]
