"""The HTTP server and the tab answer alike: status, headers that matter, bodies, order of events.

One table drives both. Larger ones are in tests/e2e/conformance.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from itertools import count
from typing import Any

import httpx
import pytest

from tests.helpers.toy.toy_tab import Reply, open_tab
from tests.runtime.server.helpers.server_process import RunningServer

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
JSON = {"content-type": "application/json"}
HELLO = [{"role": "user", "content": "hi"}]
HEADERS = ("content-type", "cache-control", "allow", "retry-after", "x-should-retry")


salts = map(str, count())
"""One for each request: `usage` would report a prefix that the server cached for another."""


def chat(**fields: Any) -> bytes:
    common = {"messages": HELLO, "max_tokens": 12, "seed": 5, "cache_salt": next(salts)}
    return json.dumps({**common, **fields}).encode()


def completion(**fields: Any) -> bytes:
    common = {"prompt": "x", "max_tokens": 12, "seed": 5, "cache_salt": next(salts)}
    return json.dumps({**common, **fields}).encode()


USAGE = {"stream": True, "stream_options": {"include_usage": True}}
TABLE: dict[str, tuple[str, str, dict[str, str], bytes]] = {
    "models": ("GET", "/v1/models", {}, b""),
    "model": ("GET", "/v1/models/toy", {}, b""),
    "chat": ("POST", CHAT, JSON, chat()),
    "chat stream": ("POST", CHAT, JSON, chat(stream=True)),
    "chat stream with usage": ("POST", CHAT, JSON, chat(**USAGE)),
    "chat greedy with stop": ("POST", CHAT, JSON, chat(temperature=0, stop=["a", "e"])),
    "completion": ("POST", COMPLETIONS, JSON, completion()),
    "completion stream": ("POST", COMPLETIONS, JSON, completion(**USAGE)),
    "two prompts": ("POST", COMPLETIONS, JSON, completion(prompt=["x", "yz"])),
    "ids": ("POST", COMPLETIONS, JSON, completion(prompt=[1, 2, 3])),
    "no such address": ("GET", "/v2/nothing", {}, b""),
    "no such method": ("GET", CHAT, {}, b""),
    "neither": ("DELETE", "/v1/models/toy", {}, b""),
    "no such model": ("GET", "/v1/models/gpt-5", {}, b""),
    "another model": ("POST", CHAT, JSON, chat(model="gpt-5")),
    "no content type": ("POST", CHAT, {}, chat()),
    "wrong content type": ("POST", CHAT, {"content-type": "text/plain"}, chat()),
    "no body": ("POST", CHAT, JSON, b""),
    "half a body": ("POST", CHAT, JSON, b'{"messages": ['),
    "no UTF-8": ("POST", CHAT, JSON, b'{"user": "\xff"}'),
    "UTF-16": ("POST", COMPLETIONS, JSON, '{"prompt": "x"}'.encode("utf-16")),
    "too deep": ("POST", CHAT, JSON, b"[" * 50_000),
    "NaN": ("POST", CHAT, JSON, chat(temperature=float("nan"))),
    "no object": ("POST", CHAT, JSON, b"[1]"),
    "unknown field": ("POST", CHAT, JSON, chat(temprature=1)),
    "range": ("POST", CHAT, JSON, chat(temperature=3)),
    "not built": ("POST", CHAT, JSON, chat(tools=[{"type": "function"}])),
    "half a surrogate": ("POST", COMPLETIONS, JSON, b'{"prompt": "a\\ud800"}'),
    "a part of half a surrogate": (
        "POST", CHAT, JSON,
        b'{"messages": [{"role": "user", "content": [{"type": "\\ud800"}]}]}',
    ),
    "too long": ("POST", COMPLETIONS, JSON, completion(prompt="x" * 600)),
    "too long a stream": ("POST", COMPLETIONS, JSON, completion(prompt="x" * 600, stream=True)),
    "foreign token": ("POST", COMPLETIONS, JSON, completion(prompt=[1000])),
    "too many prompts": ("POST", COMPLETIONS, JSON, completion(prompt=["x"] * 65)),
}  # fmt: skip


def plain(status: int, headers: Any, text: str) -> Any:
    """All that must be equal: everything but ids, times and the hash of the model's files, of which
    the toy has none."""
    text = re.sub(r'"(id|created)":("(chatcmpl|cmpl)-[0-9a-f]{32}"|\d+)', r'"\1":0', text)
    text = re.sub(r',"system_fingerprint":"fp_[0-9a-f]+"', "", text)
    return status, {name: headers[name] for name in HEADERS if name in headers}, text


@pytest.fixture(scope="module")
def tab_answers() -> dict[str, Any]:
    """The whole table, asked of one tab, one after the other."""

    async def ask_all() -> dict[str, Any]:
        found = {}
        async with open_tab() as tab:
            for name, (method, path, headers, body) in TABLE.items():
                reply = Reply()
                tab.handle(method, path, json.dumps(headers), body, reply)
                await asyncio.wait_for(reply.ended.wait(), 60)
                low = {key.lower(): value for key, value in reply.headers.items()}
                found[name] = plain(reply.status, low, reply.text)
        return found

    return asyncio.run(ask_all())


@pytest.fixture(scope="module")
def http(server: RunningServer) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, timeout=60) as client:
        yield client


@pytest.mark.parametrize("name", TABLE)
def test_server_and_tab_answer_byte_for_byte_alike(
    http: httpx.Client, tab_answers: dict[str, Any], name: str
) -> None:
    method, path, headers, body = TABLE[name]
    answer = http.request(method, path, headers=headers, content=body)
    assert tab_answers[name] == plain(answer.status_code, answer.headers, answer.text)


def test_the_table_has_every_kind_of_answer(tab_answers: dict[str, Any]) -> None:
    assert {answer[0] for answer in tab_answers.values()} == {200, 400, 404, 405, 415}
