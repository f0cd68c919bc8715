"""The server as a program: keys, queue, timeout, disconnects, a dying engine, a clean shutdown."""

from __future__ import annotations

import signal
import socket
import time
from typing import Any

import httpx
import pytest
from openai import APIError, OpenAI

from mlcc.errors import MlccError
from mlcc.server.serve import bind
from tests.runtime.server.helpers.server_process import (
    RunningServer,
    alive,
    engine_stats,
    eventually,
    idle,
    running,
)

HELLO = [{"role": "user", "content": "hi"}]
CLOSED = (("POST", "chat/completions"), ("POST", "completions"), ("GET", "models"))
LONG = {"messages": HELLO, "max_tokens": 400, "ignore_eos": True}


def ends_early(server: RunningServer, sampled: int) -> bool:
    """Whether an answer that began at `sampled` tokens ends before half of its 400."""
    ended = eventually(lambda: idle(server))
    return ended and engine_stats(server)["sampled_tokens"] < sampled + 200


def draining(server: RunningServer) -> bool:
    answer = httpx.get(f"{server.url}/ready")
    return answer.status_code == 503 and answer.json()["reason"] == "Draining"


@pytest.fixture(scope="module")
def patient() -> Any:
    with running("--delay", "0.02") as server:
        yield server


@pytest.fixture(scope="module")
def slow() -> Any:
    with running("--delay", "0.01", "--max-queue", "1", "--timeout", "1.5") as server:
        yield server


def test_a_client_that_goes_away_cancels_its_stream(patient: RunningServer) -> None:
    sampled = engine_stats(patient)["sampled_tokens"]
    with OpenAI(base_url=f"{patient.url}/v1", api_key="x") as client:
        stream = client.chat.completions.create(
            model="toy", messages=HELLO, stream=True, extra_body={"ignore_eos": True}
        )
        next(iter(stream))
        assert engine_stats(patient)["running"] == 1
        stream.close()
    assert ends_early(patient, sampled)


def test_a_client_that_goes_away_cancels_its_whole_answer(patient: RunningServer) -> None:
    sampled = engine_stats(patient)["sampled_tokens"]
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(f"{patient.url}/v1/chat/completions", json=LONG, timeout=0.3)
    assert ends_early(patient, sampled)


def test_an_answer_that_takes_too_long(slow: RunningServer) -> None:
    answer = httpx.post(f"{slow.url}/v1/chat/completions", json=LONG)
    assert answer.status_code == 504 and "--timeout" in answer.json()["error"]["message"]
    assert answer.headers["x-should-retry"] == "false"
    with OpenAI(base_url=f"{slow.url}/v1", api_key="x") as client:
        stream = client.chat.completions.create(
            model="toy", messages=HELLO, stream=True, extra_body={"ignore_eos": True}
        )
        with pytest.raises(APIError, match="--timeout"):
            list(stream)
    assert eventually(lambda: idle(slow))


def test_a_request_may_want_to_wait_less(slow: RunningServer) -> None:
    answer = httpx.post(f"{slow.url}/v1/chat/completions", json={**LONG, "timeout": 0.2})
    assert answer.status_code == 504 and answer.json()["error"]["code"] == "timeout"
    assert eventually(lambda: idle(slow))


def test_a_full_queue_says_when_to_come_back(slow: RunningServer) -> None:
    url = f"{slow.url}/v1/completions"
    all_of_it = {"prompt": ["x"] * 5, "ignore_eos": True}  # 4 at once and 1 waiting are allowed
    with httpx.stream("POST", url, json={**all_of_it, "max_tokens": 400, "stream": True}) as stream:
        lines = stream.iter_lines()
        next(lines)
        answer = httpx.post(url, json={"prompt": "x", "max_tokens": 4})
        assert answer.status_code == 503 and answer.headers["retry-after"] == "1"
        assert answer.json()["error"]["code"] == "queue_full"
    assert eventually(lambda: idle(slow))
    assert httpx.post(url, json={**all_of_it, "max_tokens": 4}).is_success


def test_more_prompts_than_ever_fit_are_the_callers_mistake(slow: RunningServer) -> None:
    answer = httpx.post(f"{slow.url}/v1/completions", json={"prompt": ["x"] * 6, "max_tokens": 4})
    assert answer.status_code == 400
    assert "6 answers" in answer.json()["error"]["message"]


def test_api_key() -> None:
    with running("--api-key", "sesame") as server:
        with OpenAI(base_url=f"{server.url}/v1", api_key="sesame") as client:
            assert client.models.list().data
        for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "sesame"}):
            for method, path in CLOSED:
                answer = httpx.request(method, f"{server.url}/v1/{path}", headers=headers)
                assert answer.status_code == 401
                assert answer.json()["error"]["code"] == "invalid_api_key"
        assert httpx.get(f"{server.url}/health").status_code == 200


def test_another_key_has_its_own_share_of_a_full_queue() -> None:
    few = {"prompt": "a prompt of several pages, all alike", "max_tokens": 4}
    many = {"prompt": ["x"] * 5, "max_tokens": 400, "ignore_eos": True, "stream": True}
    options = ("--api-key", "one", "--api-key", "two", "--max-queue", "1", "--delay", "0.05")
    with running(*options) as server, httpx.Client(timeout=60) as client:
        url = f"{server.url}/v1/completions"
        one, two = ({"Authorization": f"Bearer {key}"} for key in ("one", "two"))
        found = [client.post(url, json=few, headers=key) for key in (one, one, two, two)]
        details = [answer.json()["usage"]["prompt_tokens_details"] for answer in found]
        assert [d["cached_tokens"] > 0 for d in details] == [False, True, False, True]
        with client.stream("POST", url, json=many, headers=one) as stream:
            lines = stream.iter_lines()  # kept: once it is forgotten, the client is gone
            next(lines)
            assert client.post(url, json=few, headers=one).json()["error"]["code"] == "queue_full"
            full = client.post(url, json={**few, "prompt": ["x", "y"]}, headers=two)
            assert full.json()["error"]["code"] == "queue_full", "one, and not several"
            with client.stream("POST", url, json={**few, "stream": True}, headers=two) as let_in:
                assert let_in.status_code == 200


def test_a_full_device_costs_the_answers_being_made_and_no_more() -> None:
    with running("--full-at", "9") as server:
        engine = server.children()
        full = httpx.post(f"{server.url}/v1/chat/completions", json=LONG, timeout=60)
        assert full.status_code == 503
        assert full.json()["error"]["message"] == "the GPU's memory is full"
        after = httpx.post(f"{server.url}/v1/chat/completions", json=LONG, timeout=60)
        assert after.status_code == 200 and after.json()["usage"]["completion_tokens"] == 400
        assert idle(server) and server.children() == engine


@pytest.mark.parametrize("again_after", [0, 0.02, 0.1])
def test_a_second_interrupt_prints_nothing_either(again_after: float) -> None:
    with running() as server:
        server.process.send_signal(signal.SIGINT)
        time.sleep(again_after)
        server.process.send_signal(signal.SIGINT)
        assert server.process.stderr
        stderr = server.process.stderr.read()
        assert server.process.wait(60) == 128 + signal.SIGINT
    assert stderr == ""


@pytest.mark.parametrize("signals", [[signal.SIGINT], [signal.SIGTERM, signal.SIGTERM]])
def test_it_ends_cleanly_with_a_stream_open(signals: list[signal.Signals]) -> None:
    # so slow that the answer never ends by itself, however long a busy machine takes to drain
    with running("--delay", "0.5") as server, httpx.Client(timeout=60) as client:
        children = server.children()
        assert children
        url = f"{server.url}/v1/chat/completions"
        with client.stream("POST", url, json={**LONG, "stream": True}) as stream:
            lines = stream.iter_lines()
            next(lines)
            *before, last = signals
            for number in before:
                server.process.send_signal(number)
                assert eventually(lambda: draining(server))  # or the system may make one of two
            server.process.send_signal(last)
            assert "shutting down" in [line for line in lines if line][-1]
        assert server.process.wait(60) in (-last, 128 + last)
        assert server.process.stderr and "ERROR" not in server.process.stderr.read()
        assert eventually(lambda: not any(alive(pid) for pid in children))


def test_it_drains_at_sigterm() -> None:
    with running("--delay", "0.02") as server, httpx.Client(timeout=60) as client:
        children, url = server.children(), f"{server.url}/v1/chat/completions"
        with client.stream("POST", url, json={**LONG, "stream": True}) as stream:
            lines = stream.iter_lines()
            next(lines)
            server.process.send_signal(signal.SIGTERM)
            assert eventually(lambda: draining(server))
            refused = httpx.post(url, json=LONG)
            assert refused.status_code == 503 and refused.headers["retry-after"] == "1"
            assert refused.json()["error"]["code"] == "shutting_down"
            assert httpx.get(f"{server.url}/health").status_code == 200
            stderr = [line for line in lines if line]
        assert stderr[-1] == "data: [DONE]" and '"finish_reason":"length"' in stderr[-2]
        assert server.process.wait(60) == 0
        assert server.process.stderr and server.process.stderr.read() == ""
        assert eventually(lambda: not any(alive(pid) for pid in children))


def test_what_takes_longer_than_the_drain_is_ended() -> None:
    with running("--delay", "0.05", "--drain", "0.2") as server, httpx.Client(timeout=60) as client:
        url = f"{server.url}/v1/chat/completions"
        with client.stream("POST", url, json={**LONG, "stream": True}) as stream:
            lines = stream.iter_lines()
            next(lines)
            server.process.send_signal(signal.SIGTERM)
            assert "shutting down" in [line for line in lines if line][-1]
        assert server.process.wait(60) == 0
        assert server.process.stderr and "--drain" in server.process.stderr.read()


def test_a_killed_server_leaves_no_engine_behind() -> None:
    with running() as server:
        children = server.children()
        server.process.kill()
        assert eventually(lambda: not any(alive(pid) for pid in children))


def test_a_port_in_use_is_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(MlccError, match=f"port {port} of 127.0.0.1 is in use") as caught:
            bind("127.0.0.1", port)
    assert caught.value.exit_code == 2
