"""Every refusal has OpenAI's format, names the field, and has the right status."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.runtime.server.helpers.server_process import RunningServer, running

HELLO = [{"role": "user", "content": "hi"}]


@pytest.fixture(scope="module")
def http(server: RunningServer) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, timeout=60) as client:
        yield client


def error_of(answer: httpx.Response, status: int) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    body = answer.json()
    assert set(body) == {"error"} and set(body["error"]) == {"message", "type", "param", "code"}
    assert body["error"]["message"]
    return dict(body["error"])


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "robot", "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "user"}]}, "messages[0].content"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]},
            "messages[0].content[0].type",
        ),
        ({"temperature": 3}, "temperature"),
        ({"temperature": "hot"}, "temperature"),
        ({"top_p": -0.1}, "top_p"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": True}, "max_tokens"),
        ({"max_tokens": 1, "max_completion_tokens": 2}, "max_tokens"),
        ({"stop": [""]}, "stop[0]"),
        ({"stop": 7}, "stop"),
        ({"seed": 1.5}, "seed"),
        ({"n": 129}, "n"),
        ({"top_logprobs": 1}, "top_logprobs"),
        ({"tools": [{"type": "function"}]}, "tools[0].function"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"presence_penalty": 2.5}, "presence_penalty"),
        ({"logit_bias": {"5": 101}}, "logit_bias.5"),
        ({"stream_options": {"include_usage": True}}, "stream_options"),
    ],
)
def test_a_field_that_cannot_be_honoured_is_named(
    http: httpx.Client, fields: dict[str, Any], param: str
) -> None:
    answer = http.post("/v1/chat/completions", json={"messages": HELLO, **fields})
    error = error_of(answer, 400)
    assert error["param"] == param and param.rpartition(".")[2] in error["message"]
    assert error["type"] == "invalid_request_error"


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"prompt": [1, "a"]}, "prompt[1]"),
        ({"prompt": [1000]}, "prompt"),
        ({"prompt": "x", "echo": 1}, "echo"),
        ({"prompt": "x", "logprobs": 21}, "logprobs"),
        ({"prompt": "x", "best_of": 2, "stream": True}, "best_of"),
    ],
)
def test_completions_too(http: httpx.Client, fields: dict[str, Any], param: str) -> None:
    assert error_of(http.post("/v1/completions", json=fields), 400)["param"] == param


@pytest.mark.parametrize("stream", [False, True])
def test_too_long_a_prompt_is_refused_with_both_numbers(http: httpx.Client, stream: bool) -> None:
    body = {"prompt": "x" * 600, "stream": stream}
    error = error_of(http.post("/v1/completions", json=body), 400)
    assert error["code"] == "context_length_exceeded"
    assert "600" in error["message"] and "512" in error["message"]


def test_another_models_name(http: httpx.Client) -> None:
    body = {"model": "gpt-5", "messages": HELLO}
    error = error_of(http.post("/v1/chat/completions", json=body), 404)
    assert error["code"] == "model_not_found" and "toy" in error["message"]
    assert error_of(http.get("/v1/models/gpt-5"), 404)["param"] == "model"


@pytest.mark.parametrize("body", [b"{", b"", b"\xff", b'{"a": NaN}', b"[" * 50_000])
def test_bad_json(http: httpx.Client, body: bytes) -> None:
    headers = {"Content-Type": "application/json"}
    answer = http.post("/v1/chat/completions", content=body, headers=headers)
    assert error_of(answer, 400)["code"] == "invalid_json"


@pytest.mark.parametrize("stream", [False, True])
def test_an_unknown_field_is_ignored_and_named(http: httpx.Client, stream: bool) -> None:
    body = {"prompt": "x", "max_tokens": 1, "stream": stream, "temprature": 1, "chat_id": "7"}
    answer = http.post("/v1/completions", json=body)
    assert answer.status_code == 200
    assert answer.headers["x-mlcc-ignored"] == "temprature, chat_id"
    known = http.post("/v1/completions", json={"prompt": "x", "max_tokens": 1})
    assert "x-mlcc-ignored" not in known.headers


def test_an_unknown_field_whose_name_is_no_text(http: httpx.Client) -> None:
    headers = {"Content-Type": "application/json"}
    content = b'{"prompt": "x", "max_tokens": 1, "a\\ud800\\r\\nb: c": 1}'
    answer = http.post("/v1/completions", content=content, headers=headers)
    assert answer.headers["x-mlcc-ignored"] == "a\\\\ud800\\r\\nb: c"


def test_a_strict_server_refuses_it_and_says_what_may_be_meant() -> None:
    with running("--strict-fields") as server:
        answer = httpx.post(f"{server.url}/v1/completions", json={"prompt": "x", "temprature": 1})
        error = error_of(answer, 400)
        assert error["code"] == "unknown_parameter" and error["param"] == "temprature"
        assert "did you mean 'temperature'" in error["message"]


def test_json_that_is_no_object(http: httpx.Client) -> None:
    assert "object" in error_of(http.post("/v1/chat/completions", json=[1]), 400)["message"]


def test_a_body_that_is_not_declared_as_json(http: httpx.Client) -> None:
    answer = http.post("/v1/completions", content=b'{"prompt": "x"}')
    assert "Content-Type" in error_of(answer, 415)["message"]


@pytest.mark.parametrize("chunked", [False, True])
def test_too_large_a_body(http: httpx.Client, chunked: bool) -> None:
    content = (b"x" * 10_000 for _ in range(20)) if chunked else b"x" * 200_000
    headers = {"Content-Type": "application/json"}
    answer = http.post("/v1/completions", content=content, headers=headers)
    assert error_of(answer, 413)["code"] == "body_too_large"


def test_no_such_address_and_no_such_method(http: httpx.Client) -> None:
    error_of(http.get("/v9/nothing"), 404)
    error_of(http.get("/v1/chat/completions"), 405)
