"""Forms in memory are read as the server reads them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from mlcc.api.errors import BodyTooLargeError, MediaTypeError
from mlcc.embedded.c.form import MOST_PARTS, form_in_memory
from mlcc.errors import InvalidRequestError, MlccError
from mlcc.server.http.multipart import form_of
from mlcc.service.http.types import FormPart

Read = list[tuple[str, str | None, bytes]]


async def read(parts: AsyncIterator[FormPart]) -> Read:
    found = []
    async for part in parts:
        content = b"".join([piece async for piece in part.content])
        found.append((part.name, part.filename, content))
    return found


def by_app(headers: dict[str, str], body: bytes, most: int = 1 << 20) -> Read:
    return asyncio.run(read(form_in_memory(headers, body, most)))


def by_server(headers: dict[str, str], body: bytes) -> Read:
    async def pieces() -> AsyncIterator[bytes]:
        yield body

    return asyncio.run(read(form_of(headers, pieces()).parts()))


def sent(fields: dict[str, str], files: Any) -> tuple[dict[str, str], bytes]:
    made = httpx.Request("POST", "http://a/b", data=fields, files=files)
    return {"content-type": made.headers["content-type"]}, made.read()


@pytest.mark.parametrize(
    ("fields", "files"),
    [
        ({}, {"file": ("a.wav", b"RIFF\r\n--\r\n\r\n\x00\xff")}),
        ({"language": "en", "prompt": "ä\r\nb"}, {"file": ("ä.wav", b"")}),
        ({f"f{i}": "x" for i in range(MOST_PARTS - 1)}, {"file": ("", b"x" * 100_000)}),
        ({}, {"file": ('a"b\\c.wav', b"-" * 100)}),
    ],
)
def test_fields_are_those_that_the_server_finds(fields: dict[str, str], files: Any) -> None:
    headers, body = sent(fields, files)
    assert by_app(headers, body) == by_server(headers, body)
    assert len(by_app(headers, body)) == len(fields) + 1


def test_words_around_the_fields_are_left_out() -> None:
    kind = {"content-type": 'Multipart/Form-Data; charset=utf-8; boundary="a b"'}
    field = b"--a b\r\nX: y\r\ncontent-disposition: form-data; filename=n; name=file\r\n\r\n1\r\n"
    assert by_app(kind, b"before\r\n" + field + b"--a b--\r\nafter") == [("file", "n", b"1")]


@pytest.mark.parametrize(
    ("kind", "body", "error", "words"),
    [
        ("", b"", MediaTypeError, "declared as 'nothing'"),
        ("application/json", b"{}", MediaTypeError, "declared as 'application/json'"),
        ("multipart/form-data", b"", MediaTypeError, "boundary=..."),
        ("multipart/form-data; boundary=x", b"", InvalidRequestError, "ends before its last"),
        ("multipart/form-data; boundary=x", b"--x\r\na: b\r\n\r\n1", InvalidRequestError, "ends"),
        (
            "multipart/form-data; boundary=x",
            b"--x\r\n1\r\n--x--",
            InvalidRequestError,
            "empty line",
        ),
        ("multipart/form-data; boundary=x", bytes(99), BodyTooLargeError, "larger than"),
        (
            "multipart/form-data; boundary=x",
            b"--x\r\n\r\n\r\n" * 17,
            InvalidRequestError,
            "than 16",
        ),
    ],
)
def test_other_bodies_are_refused(
    kind: str, body: bytes, error: type[MlccError], words: str
) -> None:
    most = 98 if error is BodyTooLargeError else 1000
    with pytest.raises(error, match=words):
        by_app({"content-type": kind}, body, most)
