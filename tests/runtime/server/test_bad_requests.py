"""A request that makes the engine's steps fail, over HTTP: it ends alone, streaming or whole."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from tests.runtime.server.helpers.server_process import RunningServer, eventually, idle, running

BAD = 77
BODIES: list[dict[str, Any]] = [
    {"prompt": f"neighbour {i}", "max_tokens": 60, "seed": i, "ignore_eos": True, "stream": i < 3}
    for i in range(6)
]


def answer(server: RunningServer, body: dict[str, Any]) -> tuple[int, str, Any]:
    """Status, text and error of an answer, streamed or whole."""
    got = httpx.post(f"{server.url}/v1/completions", json=body, timeout=60)
    if not body.get("stream"):
        found = got.json()
        return (
            got.status_code,
            found["choices"][0]["text"] if got.is_success else "",
            found.get("error"),
        )
    lines = [line[6:] for line in got.text.splitlines() if line.startswith("data: {")]
    events = [json.loads(line) for line in lines]
    text = "".join(event["choices"][0]["text"] for event in events if event.get("choices"))
    return got.status_code, text, next((e["error"] for e in events if "error" in e), None)


def test_a_request_that_makes_steps_fail_ends_alone() -> None:
    with running("--delay", "0.005", "--fail-top-k", str(BAD)) as server:
        want = [answer(server, body) for body in BODIES]
        assert {(status, error) for status, _, error in want} == {(200, None)}
        processes = server.children()
        bad = [
            {"prompt": "bad", "top_k": BAD, "max_tokens": 9, "stream": stream}
            for stream in (False, True, False)
        ]
        mixed = [BODIES[0], bad[0], *BODIES[1:4], bad[1], *BODIES[4:], bad[2]]
        with ThreadPoolExecutor(len(mixed)) as pool:
            got = list(pool.map(lambda body: answer(server, body), mixed))
        assert [got[i] for i in (0, 2, 3, 4, 6, 7)] == want
        for status, text, error in (got[1], got[5], got[8]):
            assert status in (503, 200)
            assert text == ""
            assert error["message"] == "the GPU's memory is full"
        assert {*processes} <= {*server.children()}, "the engine's process is the same"
        assert eventually(lambda: idle(server))


@pytest.mark.parametrize("field", ["temperature", "presence_penalty", "repetition_penalty"])
@pytest.mark.parametrize("value", ["1e39", "-1e39", "1e400", "1" + "0" * 400])
def test_numbers_that_no_float32_holds_are_refused(
    server: RunningServer, field: str, value: str
) -> None:
    body = f'{{"prompt": "a", "max_tokens": 2, "{field}": {value}}}'
    headers = {"content-type": "application/json"}
    got = httpx.post(f"{server.url}/v1/completions", content=body, headers=headers)
    assert got.status_code == 400
