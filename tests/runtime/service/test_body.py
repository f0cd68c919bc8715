"""A body is JSON in UTF-8, within bounds of size and depth that are equal everywhere."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import pytest

from mlcc.api.errors import BodyTooLargeError, MediaTypeError
from mlcc.errors import InvalidRequestError
from mlcc.service.http.json_body import MAX_DEPTH
from mlcc.service.http.types import FORM_TYPE, ApiRequest, read_json


def read(body: bytes, limit: int = 8 << 20) -> Any:
    async def bring() -> bytes:
        return body

    headers = {"content-type": "application/json; charset=utf-8"}
    return asyncio.run(read_json(ApiRequest("POST", "/", headers, bring), limit))


def nested(depth: int) -> bytes:
    return b"[" * depth + b"]" * depth


@pytest.mark.parametrize(
    "value",
    [[[]] * 1000, "[" * 1000, '\\"' + "{" * 1000, {"a": ["]{" * 500, {}]}, json.loads(nested(128))],
)
def test_many_brackets_that_are_not_deep(value: Any) -> None:
    assert read(json.dumps(value).encode()) == value


def test_the_deepest_among_many_brackets() -> None:
    deep = b"[" + nested(MAX_DEPTH - 1) + b",[]" * MAX_DEPTH + b"]"
    assert len(read(deep)) == MAX_DEPTH + 1
    with pytest.raises(InvalidRequestError, match="too deeply nested"):
        read(b"[" + deep + b"]")


@pytest.mark.parametrize("body", [nested(MAX_DEPTH + 1), b"[" * 100_000, b'{"a":' * 129])
def test_what_is_too_deep(body: bytes) -> None:
    with pytest.raises(InvalidRequestError, match="nested") as caught:
        read(body)
    assert caught.value.code == "invalid_json"


@pytest.mark.parametrize(
    "body", [b'"' + b'\\"' * 500_000 + b"[" * 200, b'"\\' * 200_000 + b"{" * 200, b'"[' * 400_000]
)
def test_no_text_takes_long(body: bytes) -> None:
    started = time.process_time()
    with pytest.raises(InvalidRequestError):
        read(body)
    assert time.process_time() - started < 2


@pytest.mark.parametrize("body", [b"\xff", b'"\xff"', "{}".encode("utf-16"), b"\xef\xbb\xbf{}"])
def test_only_utf8_without_a_mark(body: bytes) -> None:
    with pytest.raises(InvalidRequestError):
        read(body)


def test_size() -> None:
    assert read(b"[1]", 3) == [1]
    with pytest.raises(BodyTooLargeError):
        read(b"[11]", 3)


@pytest.mark.parametrize("kind", [{}, {"content-type": FORM_TYPE}, {"content-type": "text/plain"}])
@pytest.mark.parametrize(
    ("sender", "is_page"),
    [
        ({}, False),
        ({"sec-fetch-site": "none"}, False),  # a person typed the address
        ({"sec-fetch-site": "cross-site"}, True),
        ({"origin": "https://a.example"}, True),
        ({"origin": "null", "sec-fetch-site": "none"}, True),
    ],
)
@pytest.mark.parametrize("any_content_type", [True, False])
def test_a_body_without_its_type_is_read_from_programs_alone(
    kind: dict[str, str], sender: dict[str, str], is_page: bool, any_content_type: bool
) -> None:
    async def bring() -> bytes:
        return b"[1]"

    headers = kind | sender
    request = ApiRequest("POST", "/", headers, bring, any_content_type=any_content_type)
    if any_content_type and not is_page and "text/plain" not in kind.values():
        assert asyncio.run(read_json(request, 9)) == [1]
    else:
        with pytest.raises(MediaTypeError, match="send the header 'Content-Type: application/json"):
            asyncio.run(read_json(request, 9))
