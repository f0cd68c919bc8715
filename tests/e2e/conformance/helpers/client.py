"""Sends one request of a vector and records the answer as it arrives. Checks nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx

from tests.e2e.conformance.vectors import encoded, expanded

TIMEOUT_S = 300.0
"""For a software GPU in a browser on a busy machine."""


@dataclass(frozen=True)
class Answer:
    """The answer; `text` is the part of the body that was read."""

    status: int
    headers: dict[str, str]
    text: str


class Client:
    """Speaks to one base URL. Threads may share it."""

    def __init__(self, url: str, api_key: str | None = None) -> None:
        auth = {"authorization": f"Bearer {api_key}"} if api_key else {}
        limits = httpx.Limits(max_connections=None)
        self._http = httpx.Client(base_url=url, headers=auth, timeout=TIMEOUT_S, limits=limits)

    def send(self, request: dict[str, Any]) -> Answer:
        """The whole answer."""
        return _answer(self._http.send(self._build(request)))

    def leave_within(self, request: dict[str, Any], seconds: float) -> None:
        """Close the connection while waiting. Raises AssertionError if the answer came first."""
        try:
            answer = self._http.send(self._build(request, seconds))
        except httpx.ReadTimeout:
            return
        raise AssertionError(f"answered before the client could leave: {answer.text[:300]}")

    @contextmanager
    def stream(self, request: dict[str, Any], events: int) -> Iterator[Answer]:
        """The first so many events of a stream; its connection is closed on the way out."""
        answer = self._http.send(self._build(request), stream=True)
        try:
            text, pieces = "", answer.iter_text()  # forgetting the iterator closes the connection
            for piece in pieces:
                text += piece
                if text.count("\n\n") >= events:
                    break
            else:
                raise AssertionError(f"ended before the client could leave: {text[-300:]}")
            yield Answer(answer.status_code, dict(answer.headers), text)
        finally:
            answer.close()

    def close(self) -> None:
        self._http.close()

    def _build(self, request: dict[str, Any], timeout: float = TIMEOUT_S) -> httpx.Request:
        content = _content(request)
        headers = dict(self._http.headers)
        if content is not None:
            headers["content-type"] = "application/json"
        headers |= {name.lower(): value for name, value in request.get("headers", {}).items()}
        return httpx.Request(
            request.get("method", "GET" if content is None else "POST"),
            self._http.base_url.join(request["path"]),
            headers={name: value for name, value in headers.items() if value is not None},
            content=_chunked(content) if request.get("chunked") and content else content,
            extensions={"timeout": httpx.Timeout(timeout).as_dict()},
        )


def _answer(response: httpx.Response) -> Answer:
    return Answer(response.status_code, dict(response.headers), response.text)


def _content(request: dict[str, Any]) -> bytes | None:
    if "hex" in request:
        return bytes.fromhex(request["hex"])
    if "raw" in request:
        return str(expanded(request["raw"])).encode()
    return encoded(expanded(request["body"])) if "body" in request else None


def _chunked(content: bytes) -> Iterator[bytes]:
    for at in range(0, len(content), 65536):
        yield content[at : at + 65536]
