"""What a request's body holds of the server's memory, and when that is free again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest
from starlette.requests import Request

from mlcc.api.errors import (
    BodyTooLargeError,
    BusyError,
    CancelledError,
    RequestTimeoutError,
)
from mlcc.server.asgi import PROBE, BodyMemory, RequestBody, ServiceApp, Settings
from mlcc.server.auth.keyring import TENANT
from mlcc.server.http.keepalive import COMMENT
from mlcc.server.prompts.body_reader import BodyReader
from mlcc.service.http.types import (
    EVENTS_TYPE,
    LINES_TYPE,
    ApiRequest,
    ApiResponse,
    json_response,
)

SETTINGS = Settings(max_body_bytes=10, bodies=2)


def test_as_many_bytes_as_are_free() -> None:
    memory = BodyMemory(100)
    memory.take(60, "")
    memory.take(40, "")
    with pytest.raises(BusyError, match="have 100 bytes, and 100 are the most") as caught:
        memory.take(1, "")
    assert caught.value.code == "bodies_full"
    memory.give_back(40, "")
    with pytest.raises(BusyError):
        memory.take(41, "")
    memory.take(40, "")
    memory.give_back(100, "")
    assert (memory._used, memory._used_by) == (0, {})


def test_a_key_has_as_much_as_it_leaves_to_others() -> None:
    memory = BodyMemory(100)
    memory.take(50, "a")
    with pytest.raises(BusyError, match=r"of the key 'a' .* have 50 bytes, .* now 50"):
        memory.take(1, "a")
    memory.take(25, "b")
    with pytest.raises(BusyError, match=r"of the key 'b' .* have 25 bytes"):
        memory.take(1, "b")
    memory.give_back(50, "a")
    memory.take(12, "b")
    with pytest.raises(BusyError):
        memory.take(14, "b")
    memory.give_back(37, "b")
    assert (memory._used, memory._used_by) == (0, {})


class Answers:
    """A service that reads each body and answers with its length, or with what it is given."""

    def __init__(self, then: Callable[[bytes], Awaitable[ApiResponse]]) -> None:
        self._then = then
        self.asked: list[ApiRequest] = []
        self.closed = 0

    async def answer(self, request: ApiRequest) -> ApiResponse:
        self.asked.append(request)
        try:
            response = await self._then(await request.read())
        except BodyTooLargeError as error:
            response = json_response(error.code, 413)
        return replace(response, close=self._close)

    def _close(self) -> None:
        self.closed += 1


async def length(body: bytes) -> ApiResponse:
    return json_response(len(body))


async def ask(
    app: ServiceApp,
    *pieces: bytes,
    method: str = "POST",
    path: str = "/tokenize",
    tenant: str = "t",
    scope: dict[str, Any] | None = None,
) -> list[Any]:
    """The messages that the application sends for a body of these pieces, of a client that leaves
    after it."""
    left = [
        *({"type": "http.request", "body": piece, "more_body": True} for piece in pieces),
        {"type": "http.request", "body": b""},
    ]
    sent: list[Any] = []
    gone = asyncio.Event()

    async def receive() -> Any:
        if left:
            return left.pop(0)
        await gone.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    if pieces[-1:] == (b"leave",):
        gone.set()
    scope = scope or {
        "type": "http", "method": method, "path": path, "query_string": b"a=1",
        "headers": [], "state": {TENANT: tenant},
    }  # fmt: skip
    await app(scope, receive, send)
    return sent


def app_of(service: Any, settings: Settings = SETTINGS) -> ServiceApp:
    return ServiceApp(service, settings, BodyReader(1))


def test_a_body_is_given_back_with_its_answer_and_when_it_is_refused() -> None:
    async def work() -> None:
        service = Answers(length)
        app = app_of(service)
        for _ in range(3):
            assert (await ask(app, b"12345", b"67890"))[1]["body"] == b"10"
            start, body = await ask(app, b"12345", b"678901")
            assert start["status"] == 413 and body["body"] == b'"body_too_large"'
        assert (app._memory._used, app._memory._used_by) == (0, {})
        assert service.closed == 6 and service.asked[0].query == "a=1"
        assert [request.tenant for request in service.asked] == ["t"] * 6

    asyncio.run(work())


def test_a_client_that_leaves_ends_its_work() -> None:
    ended: list[str] = []

    async def wait(body: bytes) -> ApiResponse:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            ended.append(body.decode())
            raise
        raise AssertionError

    async def work() -> None:
        app = app_of(Answers(wait))
        assert await asyncio.wait_for(ask(app, b"leave"), 60) == []
        assert ended == ["leave"] and app._memory._used == 0

    asyncio.run(work())


def test_methods_beside_those_of_the_routes() -> None:
    async def work() -> None:
        service = Answers(length)
        app = app_of(service)
        (start, _) = await ask(app, method="OPTIONS", path="/v1/models")
        assert start["status"] == 204
        assert dict(start["headers"])[b"allow"] == b"GET, OPTIONS, HEAD"
        (start, _) = await ask(app, method="OPTIONS")
        assert dict(start["headers"])[b"allow"] == b"POST, OPTIONS"
        assert not service.asked
        for method, path in (("HEAD", "/v1/models"), ("HEAD", "/tokenize"), ("OPTIONS", "/none")):
            await ask(app, method=method, path=path)
        methods = [request.method for request in service.asked]
        assert methods == ["GET", "HEAD", "OPTIONS"]

    asyncio.run(work())


class VirtualTime(asyncio.SelectorEventLoop):
    """Its clock stands at the next timer whenever nothing else is to be done."""

    _now = 0.0

    def time(self) -> float:
        return self._now

    def _run_once(self) -> None:
        if not self._ready and self._scheduled:  # type: ignore[attr-defined]
            self._now = self._scheduled[0].when()  # type: ignore[attr-defined]
        super()._run_once()  # type: ignore[misc]


@pytest.mark.parametrize(
    ("size", "pause_s", "refused"),
    [
        (10, 0.05, False),
        (10, 0.2, False),
        (10, 0.3, True),
        (15, 0.4, False),  # exactly the rate, window after window
        (14, 0.4, True),
    ],
)
def test_a_body_slower_than_the_rate_is_refused(size: int, pause_s: float, refused: bool) -> None:
    """Fifteen bytes must come within a half second."""

    async def work() -> str | bytes:
        settings = replace(SETTINGS, max_body_bytes=200, body_rate=30, body_window_s=0.5)
        pieces = [bytes(size)] * 8

        async def receive() -> Any:
            await asyncio.sleep(pause_s)
            body = pieces.pop() if pieces else b""
            return {"type": "http.request", "body": body, "more_body": bool(pieces)}

        body = RequestBody(
            Request({"type": "http", "headers": []}, receive), settings, BodyMemory(200)
        )
        try:
            return await body.read()
        except RequestTimeoutError as error:
            return error.message

    loop = VirtualTime()
    try:
        found = loop.run_until_complete(work())
    finally:
        loop.close()
    assert "less than 30 bytes a second" in str(found) if refused else found == bytes(8 * size)


def test_a_body_is_given_back_once() -> None:
    async def work() -> None:
        async def receive() -> Any:
            return {"type": "http.request", "body": b"12345", "more_body": False}

        memory = BodyMemory(20)
        body = RequestBody(Request({"type": "http", "headers": []}, receive), SETTINGS, memory)
        memory.take(3, "")
        await body.read()
        assert memory._used == 8
        body.close()
        body.close()
        assert memory._used == 3

    asyncio.run(work())


@pytest.mark.parametrize(
    ("kind", "probe"), [(LINES_TYPE, b" "), (EVENTS_TYPE, COMMENT), (None, None)]
)
def test_bytes_that_ask_whether_a_client_still_reads(kind: str | None, probe: bytes | None) -> None:
    """They mean nothing in the stream's format; an answer in one piece has none."""

    async def lines() -> AsyncIterator[str]:
        yield "{}\n"

    async def stream(body: bytes) -> ApiResponse:
        if kind is None:
            return json_response(1)
        return ApiResponse(200, {"content-type": kind}, lines())

    for state in ({}, {"state": {TENANT: "t"}}):
        scope: dict[str, Any] = {
            "type": "http", "method": "POST", "path": "/api/chat", "headers": [], **state
        }  # fmt: skip
        asyncio.run(ask(app_of(Answers(stream)), b"{}", scope=scope))
        assert scope["state"].get(PROBE) == probe


def test_what_anonymous_means() -> None:
    async def work() -> None:
        for keys, tenant, anonymous in ((("k",), "", True), (("k",), "t", False), ((), "", False)):
            service = Answers(length)
            app = app_of(service, replace(SETTINGS, api_keys=keys))
            await ask(app, b"a", tenant=tenant)
            assert service.asked[0].anonymous == anonymous

    asyncio.run(work())


def test_a_client_that_leaves_within_its_body() -> None:
    async def work() -> None:
        async def receive() -> Any:
            return {"type": "http.disconnect"}

        body = RequestBody(
            Request({"type": "http", "headers": []}, receive), SETTINGS, BodyMemory(20)
        )
        with pytest.raises(CancelledError, match="closed the connection"):
            await body.read()

    asyncio.run(work())


def test_settings_in_a_log_show_no_key() -> None:
    assert "sesame" not in repr(Settings(api_keys=("sesame",)))
