"""The bookkeeping of requests in flight: places in the queue, and the times of a finished one."""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from mlcc.api.errors import BusyError, RequestTimeoutError
from mlcc.engine.batch.batch import Capacity
from mlcc.engine.events import Finished, TextDelta
from mlcc.engine.request import Request
from mlcc.errors import DeviceError, InvalidRequestError
from mlcc.service.engine_client import EngineClient
from mlcc.service.observer import FinishedRequest, NullObserver
from tests.helpers.toy.toy_model import CAPACITY


class Recording(EngineClient):
    """An engine that does nothing, and what it was sent."""

    def __init__(self, most: int) -> None:
        super().__init__(most)
        self.added: list[str] = []
        self.cancelled: list[str] = []

    @property
    def capacity(self) -> Capacity:
        return CAPACITY

    async def counters(self) -> dict[str, Any]:
        return {"engine": None}

    def _add(self, request: Request) -> None:
        self.added.append(request.id)

    def _cancel(self, request_id: str) -> None:
        self.cancelled.append(request_id)


class Ends(NullObserver):
    def __init__(self) -> None:
        self.found: list[FinishedRequest] = []
        self.firsts: list[tuple[str, float]] = []

    def first_token(self, tenant: str, seconds: float, /) -> None:
        self.firsts.append((tenant, seconds))

    def done(self, done: FinishedRequest, /) -> None:
        self.found.append(done)


def requests(tenant: str, *names: str) -> list[Request]:
    return [Request(name, array("i", [1, 2]), tenant=tenant) for name in names]


def in_loop(work: Callable[[Recording], None], most: int = 3) -> Recording:
    client = Recording(most)

    async def run() -> None:
        work(client)

    asyncio.run(run())
    return client


def test_a_full_queue_takes_one_more_of_a_tenant_that_has_none() -> None:
    def work(client: Recording) -> None:
        assert client.queue_space == 3
        client.submit(requests("a", "1", "2"), None)
        assert client.queue_space == 1
        client.check_queue(1, "a")
        with pytest.raises(BusyError, match="2 requests are live and the limit is 3"):
            client.check_queue(2, "b")
        client.submit(requests("a", "3"), None)
        with pytest.raises(BusyError):
            client.check_queue(1, "a")
        client.submit(requests("b", "4"), None)
        assert client.queue_space == 0 and client.in_flight == 4
        with pytest.raises(BusyError):
            client.check_queue(1, "b")
        with pytest.raises(InvalidRequestError, match="4 answers and 3 are taken at most"):
            client.check_queue(4, "c")

    assert in_loop(work).added == ["1", "2", "3", "4"]


def test_a_closed_job_cancels_what_has_not_finished() -> None:
    def work(client: Recording) -> None:
        client.observer = ends = Ends()
        job = client.submit(requests("a", "1", "2"), None)
        client._deliver([TextDelta("1", "x", (7,)), TextDelta("1", "y", (8, 9))])
        client._deliver([Finished("1", "stop", 2, 3, cached_tokens=1)])
        client._forget("1", True)
        job.close()
        job.close()
        assert client.cancelled == ["2"] and client.in_flight == 0
        assert [(end.reason, end.completion_tokens) for end in ends.found] == [
            ("stop", 3),
            ("cancelled", 0),
        ]
        assert (ends.found[0].prompt_tokens, ends.found[0].cached_tokens) == (2, 1)
        assert ends.found[0].to_first is not None and ends.found[1].to_first is None

    in_loop(work)


def test_a_dead_engine_keeps_its_first_error_and_is_sent_nothing() -> None:
    def work(client: Recording) -> None:
        client.observer = ends = Ends()
        client.submit(requests("a", "1"), None)
        client._die(DeviceError("first"))
        client._die(DeviceError("second"))
        with pytest.raises(DeviceError, match="first"):
            client.check_queue(1)
        assert not client.ready and client.cancelled == []
        assert [end.reason for end in ends.found] == ["error"]

    in_loop(work)


def test_the_time_per_token() -> None:
    end = FinishedRequest("a", "stop", 1, 0, completion_tokens=5, to_first=2.0, total=10.0)
    assert end.per_token == 2.0
    assert replace(end, completion_tokens=2).per_token == 8.0
    assert replace(end, completion_tokens=1).per_token is None
    assert replace(end, to_first=None).per_token is None


def test_a_batch_takes_no_place_in_the_queue() -> None:
    def work(client: Recording) -> None:
        lines = [replace(each, background=True) for each in requests("a", *"12345")]
        jobs = [client.submit([line], None) for line in lines]
        assert client.queue_space == 3 and client.in_flight == 5
        live = client.submit(requests("a", *"678"), None)
        with pytest.raises(BusyError):
            client.check_queue(1, "a")
        client.check_queue(1, "b")
        for job in (live, *jobs):
            job.close()
        assert client.queue_space == 3

    in_loop(work)


def test_the_time_to_the_first_token_is_that_since_the_queue() -> None:
    def work(client: Recording) -> None:
        client.observer = ends = Ends()
        client.submit(requests("a", "1"), None)
        for _ in range(2):
            client._deliver([TextDelta("1", "a", (3,))])
        ((tenant, seconds),) = ends.firsts
        assert tenant == "a" and 0 <= seconds < 60
        client.submit([replace(each, background=True) for each in requests("a", "2")], None)
        client._deliver([TextDelta("2", "a", (3,)), Finished("2", "stop", 2, 1)])
        assert len(ends.firsts) == 1, "a line of a batch waits as long as it must"
        assert [end.background for end in ends.found] == [True]

    in_loop(work)


def test_a_closed_job_has_no_timer_and_a_late_one_fails() -> None:
    async def run() -> None:
        client = Recording(9)
        job = client.submit(requests("a", "1"), 0.01)
        with pytest.raises(RequestTimeoutError, match="no complete answer"):
            await job.accepted()
        job.close()
        other = client.submit(requests("a", "2"), 3600)
        timer = other._timer
        assert timer is not None and not timer.cancelled()
        other.close()
        assert timer.cancelled()

    asyncio.run(run())
