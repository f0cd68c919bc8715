"""Runs vectors against a base URL, many at once, and reports the differences of each.

Neither a server nor a test: `test_server.py` and `test_tab.py` start the tested server, and `python
-m tests.e2e.conformance URL` runs it by hand.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from threading import Lock
from typing import Any

from tests.e2e.conformance.helpers.answers import events, named_events, read_answer
from tests.e2e.conformance.helpers.client import Answer, Client
from tests.e2e.conformance.helpers.matching import Json, Matcher, Mismatch
from tests.e2e.conformance.vectors import Vector, filled

WORKERS = 8
_PAUSE_S = 0.05


class Runner:
    """Runs vectors against a URL. Vectors that must run alone come after all others."""

    def __init__(self, client: Client, vectors: Iterable[Vector], recording: bool = False) -> None:
        self._client = client
        self._recording = recording
        self._pool = ThreadPoolExecutor(WORKERS)
        self._alone = Lock()
        self._started: dict[str, Future[None]] = {
            vector.id: self._pool.submit(self._run, vector)
            for vector in vectors
            if not vector.alone
        }

    def result(self, vector: Vector) -> None:
        """Wait for a vector. Raises Mismatch, or the exception of its requests."""
        if not vector.alone:
            return self._started[vector.id].result()
        wait(self._started.values())
        with self._alone:
            self._run(vector)

    def close(self) -> None:
        """Cancel the waiting requests and wait for running ones."""
        self._pool.shutdown(cancel_futures=True)

    def _run(self, vector: Vector) -> None:
        matcher = Matcher(self._recording)
        for number, step in enumerate(vector.steps):
            try:
                self._step(step, matcher)
            except Mismatch as error:
                place = f"step {number}, " if len(vector.steps) > 1 else ""
                raise Mismatch(f"{vector.id}: {place}{error}") from None

    def _step(self, step: dict[str, Any], matcher: Matcher) -> None:
        if "together" in step:
            with ThreadPoolExecutor(len(step["together"])) as pool:
                list(pool.map(lambda one: self._step(one, matcher), step["together"]))
            return
        until = time.monotonic() + step.get("within", 0)
        while True:
            try:
                return self._once(step, matcher)
            except Mismatch:
                if time.monotonic() > until:
                    raise
            time.sleep(_PAUSE_S)

    def _once(self, step: dict[str, Any], matcher: Matcher) -> None:
        request, leave = filled(step["request"], matcher.names), step.get("leave", {})
        if "seconds" in leave:
            return self._client.leave_within(request, leave["seconds"])
        if "events" in leave:
            with self._client.stream(request, leave["events"]) as answer:
                for one in leave.get("meanwhile", ()):
                    self._step(one, matcher)
        else:
            answer = self._client.send(request)
        judge(request, step["expect"], answer, matcher)


def judge(request: Json, expect: Json, answer: Answer, matcher: Matcher) -> None:
    """Raise Mismatch unless the answer is the expected one."""
    if answer.status != expect.get("status", 200):
        wanted = expect.get("status", 200)
        raise Mismatch(f"status: wanted {wanted}, got {answer.status}: {answer.text[:300]}")
    headers = {name: answer.headers.get(name) for name in expect.get("headers", {})}
    matcher.check(expect.get("headers", {}), headers, "headers")
    if "error" in expect:
        error = {"type": "invalid_request_error", **expect["error"]}
        matcher.check({"error": error}, _json(answer), "body")
    if "body" in expect:
        matcher.check(expect["body"], _json(answer), "body")
    if "chunks" in expect:
        matcher.check(expect["chunks"], events(answer.text), "chunks")
    if "events" in expect:
        matcher.check(expect["events"], named_events(answer.text), "events")
    if "lines" in expect:
        matcher.check(
            expect["lines"], [json.loads(line) for line in answer.text.splitlines()], "lines"
        )
    if "answer" in expect:
        matcher.check(_opened(expect["answer"]), read_answer(request, answer.text), "answer")


def _opened(answer: Json) -> Json:
    """Compare the named keys with the expectation; usage and the pieces of a stream need not be
    named."""
    choices = [{"$open": choice} for choice in answer["choices"]]
    return {"$open": {**answer, "choices": choices}}


def _json(answer: Answer) -> Json:
    kind = answer.headers.get("content-type")
    if kind != "application/json":
        raise Mismatch(f"headers.content-type: wanted 'application/json', got {kind!r}")
    try:
        return json.loads(answer.text)
    except ValueError:
        raise Mismatch(f"body: not JSON: {answer.text[:300]!r}") from None
