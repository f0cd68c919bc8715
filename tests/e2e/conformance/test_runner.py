"""The runner itself: it finds every wrong answer, and runs each kind of step."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from tests.e2e.conformance.helpers.client import Answer, Client
from tests.e2e.conformance.helpers.matching import Json, Matcher, Mismatch
from tests.e2e.conformance.runner import Runner, judge
from tests.e2e.conformance.vectors import Vector, parse

CHAT = "/v1/chat/completions"
HEAD = {
    "id": "chatcmpl-" + "0" * 32,
    "created": 1,
    "model": "m",
    "system_fingerprint": "fp_" + "0" * 12,
}
COUNTS = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
USAGE = {**COUNTS, "prompt_tokens_details": {"cached_tokens": 2}}
EXPECT = {"answer": {"choices": [{"text": "ab", "finish_reason": "stop"}], "usage": COUNTS}}


def chunk(delta: Json, reason: str | None = None) -> dict[str, Json]:
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
    return {**HEAD, "object": "chat.completion.chunk", "choices": [choice], "usage": None}


ROLE, A, B = (
    chunk({"role": "assistant", "content": ""}),
    chunk({"content": "a"}),
    chunk({"content": "b"}),
)
END = chunk({}, "stop")
LAST = {**END, "choices": [], "usage": USAGE}
GOOD = [ROLE, A, B, END, LAST]


def streamed(chunks: list[Json], end: str = "data: [DONE]\n\n", usage: bool = True) -> None:
    """Judge a stream of these chunks."""
    options = {"stream_options": {"include_usage": True}} if usage else {}
    request = {"path": CHAT, "body": {"stream": True, **options}}
    text = "".join(f"data: {json.dumps(one)}\n\n" for one in chunks) + end
    judge(request, EXPECT, Answer(200, {"content-type": "text/event-stream"}, text), Matcher())


def test_a_good_stream_passes() -> None:
    streamed(GOOD)


@pytest.mark.parametrize(
    "chunks",
    [
        [ROLE, B, A, END, LAST],
        [A, B, END, LAST],
        [A, ROLE, B, END, LAST],
        [ROLE, ROLE, A, B, END, LAST],
        [ROLE, A, B, LAST],
        [ROLE, A, B, END, END, LAST],
        [ROLE, A, END, B, LAST],
        [ROLE, A, B, END],
        [ROLE, A, B, LAST, END],
        [ROLE, A, B, chunk({"content": ""}), END, LAST],
        [ROLE, A, B, chunk({"content": "c"}), END, LAST],
        [ROLE, A, chunk({"content": "b"}, "stop"), LAST],
        [ROLE, A, B, chunk({}, "length"), LAST],
        [ROLE, A, B, chunk({}, "cancelled"), LAST],
        [ROLE, A, {**B, "id": "chatcmpl-" + "1" * 32}, END, LAST],
        [ROLE, A, {**B, "created": 2}, END, LAST],
        [ROLE, A, {**B, "usage": USAGE}, END, LAST],
        [ROLE, A, {**B, "extra": 1}, END, LAST],
        [ROLE, A, {**B, "object": "chat.completion"}, END, LAST],
        [ROLE, A, {key: B[key] for key in B if key != "model"}, END, LAST],
        [ROLE, A, B, END, {**LAST, "usage": {**USAGE, "completion_tokens": 1}}],
        [],
    ],
)
def test_a_wrong_stream_is_found(chunks: list[Json]) -> None:
    with pytest.raises(Mismatch):
        streamed(chunks)


@pytest.mark.parametrize(
    "end", ["", "data: [DONE]\n", "data: [DONE]\n\ndata: {}\n\n", ": hi\n\ndata: [DONE]\n\n"]
)
def test_a_wrong_end_is_found(end: str) -> None:
    with pytest.raises(Mismatch):
        streamed(GOOD, end)


def test_usage_that_was_not_requested_is_found() -> None:
    with pytest.raises(Mismatch, match="usage"):
        streamed(GOOD, usage=False)


WHOLE: dict[str, Json] = {
    **HEAD,
    "object": "chat.completion",
    "choices": [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "ab", "refusal": None},
            "logprobs": None,
            "finish_reason": "stop",
        }
    ],
    "usage": USAGE,
}


def judge_whole(body: Json, expect: Json = EXPECT, status: int = 200) -> None:
    answer = Answer(status, {"content-type": "application/json"}, json.dumps(body))
    judge({"path": CHAT, "body": {}}, expect, answer, Matcher())


def test_a_good_answer_passes() -> None:
    judge_whole(WHOLE)


@pytest.mark.parametrize(
    "change",
    [
        {"extra": 1},
        {"id": "cmpl-1"},
        {"created": 1.5},
        {"created": True},
        {"choices": []},
        {"choices": WHOLE["choices"] * 2},
        {"choices": [{**WHOLE["choices"][0], "finish_reason": None}]},
        {"choices": [{**WHOLE["choices"][0], "message": {"role": "assistant", "content": "ab"}}]},
        {"usage": None},
        {"usage": {**USAGE, "total_tokens": 6}},
        {"usage": COUNTS},
        {"usage": {**COUNTS, "prompt_tokens_details": {"cached_tokens": 3}}},
    ],
)
def test_a_wrong_answer_is_found(change: dict[str, Json]) -> None:
    with pytest.raises(Mismatch):
        judge_whole({**WHOLE, **change})


def test_a_wrong_status_header_or_error_is_found() -> None:
    error = {"message": "no 'x'", "type": "invalid_request_error", "param": "x", "code": "c"}
    expect = {"status": 400, "error": {"message": {"$has": ["x"]}, "param": "x", "code": "c"}}
    judge_whole({"error": error}, expect, 400)
    for key in error:
        with pytest.raises(Mismatch, match=key):
            judge_whole({"error": {**error, key: "other"}}, expect, 400)
        with pytest.raises(Mismatch, match=key):
            judge_whole({"error": {k: v for k, v in error.items() if k != key}}, expect, 400)
    with pytest.raises(Mismatch, match="status"):
        judge_whole({"error": error}, expect, 500)
    with pytest.raises(Mismatch, match="allow"):
        judge_whole({"error": error}, {**expect, "headers": {"allow": "POST"}}, 400)


@pytest.mark.parametrize(
    ("expected", "good", "bad"),
    [
        (1, [1, 1.0], [True, "1", None, 2]),
        (True, [True], [1, "true"]),
        ({"a": [False]}, [{"a": [False]}], [{"a": [0]}, {"a": []}, {}, {"a": [False], "b": 1}]),
        ({"$any": "integer"}, [5], [5.5, True, None]),
        ({"$any": "number"}, [5, 5.5], [True, "5"]),
        ({"$any": "boolean"}, [True], [1]),
        ({"$regex": "^a.c$"}, ["abc"], ["xabc", 5]),
        ({"$has": ["a", "b"]}, ["xbya"], ["a", None]),
        ({"$open": {"a": 1}}, [{"a": 1, "b": 2}], [{"b": 2}, {"a": 2}, 5]),
        ({"$record": "a"}, ["a"], ["b"]),
        ([{"$same": "x"}, {"$same": "x"}], [[1, 1]], [[1, 2], [1, True]]),
        ([{"$same": "x"}, {"$differs": "x"}], [[1, 2]], [[1, 1]]),
        ([{"$same": "x"}, {"$below": ["x", 3]}], [[1, 1], [1, 3]], [[1, 4], [1, 0]]),
    ],
)
def test_placeholders(expected: Json, good: list[Json], bad: list[Json]) -> None:
    for value in good:
        Matcher().check(expected, value, "value")
    for value in bad:
        with pytest.raises(Mismatch):
            Matcher().check(expected, value, "value")


def test_a_misspelt_placeholder_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"\$ayn"):
        Matcher().check({"$ayn": "string"}, "x", "value")


def test_recording_takes_what_came() -> None:
    expected = {"a": {"$record": None}, "b": 1}
    Matcher(recording=True).check(expected, {"a": [2], "b": 1}, "value")
    assert expected == {"a": {"$record": [2]}, "b": 1}


class Echo(BaseHTTPRequestHandler):
    """Answers a GET with its record of the requests so far."""

    protocol_version = "HTTP/1.1"
    now, most, left = 0, 0, 0
    lock = threading.Lock()
    four = threading.Barrier(4)

    def do_GET(self) -> None:
        with self.lock:
            Echo.now += 1
            Echo.most = max(Echo.most, Echo.now)
        if self.path == "/four":
            self.four.wait(60)
        else:
            time.sleep(0.05)
        with self.lock:
            Echo.now -= 1
        body = json.dumps({"most": Echo.most, "now": Echo.now, "left": Echo.left}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        """An endless stream."""
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        try:
            while True:
                self.wfile.write(b"a\r\ndata: {}\n\n\r\n")
                time.sleep(0.01)
        except OSError:
            Echo.left += 1
            self.close_connection = True

    def log_message(self, *args: Any) -> None:
        """Print no log."""


Run = Callable[..., None]


@pytest.fixture
def run() -> Iterator[Run]:
    """Runs entries against a server of its own, all of them started before the first is judged."""
    Echo.now = Echo.most = Echo.left = 0
    server = ThreadingHTTPServer(("127.0.0.1", 0), Echo)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    client = Client(f"http://127.0.0.1:{server.server_address[1]}")

    def start(*entries: Json) -> None:
        vectors: list[Vector] = [
            parse("t", {"name": str(i), "why": "w", **entry}) for i, entry in enumerate(entries)
        ]
        runner = Runner(client, vectors)
        try:
            for vector in vectors:
                runner.result(vector)
        finally:
            runner.close()

    yield start
    client.close()
    server.shutdown()
    server.server_close()


def get(path: str = "/", **expect: Json) -> Json:
    return {"request": {"path": path}, "expect": {"body": {"$open": expect}}}


def test_vectors_run_at_once_and_alone_means_alone(run: Run) -> None:
    run(*[get()] * 6, {**get(now=0), "alone": True}, *[get()] * 6)
    assert Echo.most > 1


def test_together_is_at_once(run: Run) -> None:
    run({"steps": [get(most=1), {"together": [get("/four")] * 4}, get(most=4)]})


def test_a_failing_step_is_numbered(run: Run) -> None:
    with pytest.raises(Mismatch, match=r"t/0: step 1, body\.most"):
        run({"steps": [get(most=1), get(most=7)]})


def test_within_asks_again_until_time_is_up(run: Run) -> None:
    post = {"request": {"path": "/", "body": {}}, "expect": {}}
    leave = {**post, "leave": {"events": 2, "meanwhile": [get(left=0)]}}
    run({"steps": [leave, {**get(left=1), "within": 60}]})
    with pytest.raises(Mismatch, match="left"):
        run({"steps": [{**get(left=9), "within": 0.2}]})


def test_leaving_while_waiting(run: Run) -> None:
    run({**get(), "leave": {"seconds": 0.01}})
    with pytest.raises(AssertionError, match="before the client could leave"):
        run({**get(), "leave": {"seconds": 5}})
    with pytest.raises(AssertionError, match="before the client could leave"):
        run({**get(), "leave": {"events": 1}})
