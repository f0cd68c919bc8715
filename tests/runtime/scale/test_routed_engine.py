"""Requests over replicas that die: each ends by one answer or one error."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator

import pytest

from mlcc.api.errors import BusyError, EngineDiedError
from mlcc.engine.request import Request
from mlcc.errors import DeviceError, InvalidRequestError, MlccError
from mlcc.scale.messages import ReplicaCall, ReplyBatch
from mlcc.scale.routed_engine import (
    MAX_LOST,
    ForeignReplicaError,
    ReplicaLostError,
    RoutedEngine,
    StartingReplicaError,
)
from mlcc.worker.messages import Accepted, Dropped, Refused
from tests.helpers.toy.toy_model import CAPACITY
from tests.runtime.scale.scripted_replicas import ScriptedReplicas


def engine(replicas: ScriptedReplicas, max_in_flight: int = 10_000) -> RoutedEngine:
    return RoutedEngine(replicas, CAPACITY, "", max_in_flight)


async def answered(client: RoutedEngine, name: str, prompt: list[int]) -> str:
    job = client.submit([Request(name, prompt)], None)
    try:
        return (await job.answers())[0].text
    finally:
        job.close()


def whole_answer(prompt: list[int]) -> str:
    return "".join(f"{token}," for token in prompt)


async def storm(requests: int, kill_s: float) -> tuple[Counter[str], ScriptedReplicas, int]:
    """Requests by the dozen while replicas are killed at random; how each ended."""
    replicas = ScriptedReplicas(3)
    client, rng, ends = engine(replicas), random.Random(5), Counter[str]()

    async def kill() -> None:
        while True:
            await asyncio.sleep(rng.expovariate(1 / kill_s))
            replicas.kill(rng.choice(replicas.names))

    async def one(number: int) -> None:
        prompt = [rng.randrange(90) for _ in range(rng.randrange(1, 12))]
        job = client.submit([Request(f"q{number}", prompt)], None)
        text = ""
        try:
            async for _, event in job.events():
                text += getattr(event, "text", "")
            assert text == whole_answer(prompt)
            ends["answered"] += 1
        except EngineDiedError as error:
            assert error.code == "replica_lost"
            assert whole_answer(prompt).startswith(text)
            assert text or "3 times" in error.message, "a request without output is sent again"
            ends["failed"] += 1
        finally:
            job.close()

    killer = asyncio.ensure_future(kill())
    for first in range(0, requests, 24):
        await asyncio.gather(*map(one, range(first, min(first + 24, requests))))
    killer.cancel()
    assert not client.in_flight
    return ends, replicas, client.retried


def check_storm(requests: int, kill_s: float) -> Counter[str]:
    ends, replicas, retried = asyncio.run(storm(requests, kill_s))
    assert sum(ends.values()) == requests, "every request ends by an answer or an error"
    assert ends["answered"] and ends["failed"] and retried
    assert max(replicas.ended.values()) == 1, "none is answered twice"
    return ends


def test_dozens_of_requests_with_random_kills() -> None:
    check_storm(240, 0.002)


@pytest.mark.long
def test_five_thousand_requests_with_random_kills() -> None:
    check_storm(5000, 0.002)


def test_what_was_not_begun_is_asked_of_another() -> None:
    async def run() -> None:
        replicas = ScriptedReplicas(2, pause_s=0.02)
        client = engine(replicas)
        job = client.submit([Request("a", [1, 2, 3])], None)
        await asyncio.sleep(0.005)
        replicas.kill(replicas.asked[0])
        answers = await job.answers()
        assert answers[0].text == "1,2,3,"
        assert len(replicas.asked) == 2 and replicas.asked[0] != replicas.asked[1]
        job.close()

    asyncio.run(run())


def test_one_that_is_there_each_time_may_be_why() -> None:
    class Deadly(ScriptedReplicas):
        async def call(self, call: ReplicaCall) -> AsyncIterator[ReplyBatch]:
            self.asked.append("")
            yield [Dropped(EngineDiedError("the engine is gone", code="engine_died"))]

    async def run() -> None:
        replicas = Deadly(4)
        with pytest.raises(EngineDiedError, match="lost 3 times"):
            await answered(engine(replicas), "a", [1])
        assert len(replicas.asked) == MAX_LOST

    asyncio.run(run())


@pytest.mark.parametrize(
    "stats",
    [
        Refused("a", InvalidRequestError("no such token", param="prompt")),
        Dropped(DeviceError("the device failed")),
    ],
)
def test_what_the_request_itself_is_to_blame_for_is_asked_once(stats: Refused | Dropped) -> None:
    class Refusing(ScriptedReplicas):
        async def call(self, call: ReplicaCall) -> AsyncIterator[ReplyBatch]:
            self.asked.append("")
            yield [stats]

    async def run() -> None:
        replicas = Refusing(4)
        with pytest.raises(type(stats.error)):
            await answered(engine(replicas), "a", [1])
        assert len(replicas.asked) == 1

    asyncio.run(run())


def test_a_disconnect_ends_the_work() -> None:
    async def run() -> None:
        replicas = ScriptedReplicas(1, pause_s=0.001)
        client = engine(replicas)
        job = client.submit([Request("a", list(range(90)))], None)
        await job.accepted()
        job.close()
        await asyncio.sleep(0.05)
        assert not client.in_flight and not replicas.ended

    asyncio.run(run())


def test_a_full_queue_is_reported_here() -> None:
    async def run() -> None:
        client = engine(ScriptedReplicas(1, pause_s=1), max_in_flight=2)
        jobs = [client.submit([Request(f"a{n}", [1])], None) for n in range(2)]
        with pytest.raises(BusyError):
            client.submit([Request("b", [1])], None)
        client.stop()
        for job in jobs:
            with pytest.raises(MlccError):
                await job.answers()
            job.close()

    asyncio.run(run())


def test_a_stream_without_an_end_is_a_loss() -> None:
    class Mute(ScriptedReplicas):
        async def call(self, call: ReplicaCall) -> AsyncIterator[ReplyBatch]:
            yield [Accepted(call.request.id)]

    async def run() -> None:
        with pytest.raises(EngineDiedError, match="before the answer's end"):
            await answered(engine(Mute(1)), "a", [1])

    asyncio.run(run())


class Upgraded(ScriptedReplicas):
    """Replicas of another artifact, until so many requests were sent."""

    def __init__(self, foreign: int) -> None:
        super().__init__(2)
        self._foreign = foreign

    async def call(self, call: ReplicaCall) -> AsyncIterator[ReplyBatch]:
        if len(self.asked) < self._foreign:
            self.asked.append("")
            yield [Dropped(ForeignReplicaError("a replica runs fp_1, not fp_2"))]
            return
        async for piece in super().call(call):
            yield piece


def test_in_an_upgrade_it_waits_for_a_replica_of_its_artifact() -> None:
    """More of the other one than it would have had lost: nothing was lost."""

    async def run() -> None:
        replicas = Upgraded(MAX_LOST + 1)
        client = engine(replicas)
        assert await answered(client, "a", [1, 2]) == "1,2,"
        assert len(replicas.asked) == MAX_LOST + 2 and not client.retried

    asyncio.run(run())


def test_a_request_without_output_is_sent_until_a_replica_answers() -> None:
    """A dead replica may be chosen until its death is known: that does not count as a replica lost
    by the request."""

    class Gone(ScriptedReplicas):
        async def call(self, call: ReplicaCall) -> AsyncIterator[ReplyBatch]:
            if len(self.asked) <= MAX_LOST:
                self.asked.append("")
                raise ReplicaLostError("a replica was lost")
            async for piece in super().call(call):
                yield piece

    async def run() -> None:
        client = engine(Gone(2))
        assert await answered(client, "a", [1, 2]) == "1,2,"
        assert client.retried == MAX_LOST + 1

    asyncio.run(run())


@pytest.mark.parametrize(("refusals", "pause_s"), [(1, 3600.0), (MAX_LOST + 1, 0.01)])
def test_while_an_engine_is_being_started_another_answers(
    refusals: int, pause_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At once; and where each refuses, it asks until one does not, as nothing is lost by that."""
    monkeypatch.setattr("mlcc.scale.routed_engine.RETRY_S", pause_s)

    class Restarting(ScriptedReplicas):
        async def call(self, call: ReplicaCall) -> AsyncIterator[ReplyBatch]:
            if len(self.asked) < refusals:
                self.asked.append("")
                raise StartingReplicaError("a replica's engine is being started", "r0")
            assert "r0" in call.avoid
            async for piece in super().call(call):
                yield piece

    async def run() -> None:
        replicas = Restarting(2)
        answer = await asyncio.wait_for(answered(engine(replicas), "a", [1, 2]), 60)
        assert answer == "1,2," and len(replicas.asked) == refusals + 1

    asyncio.run(run())


def test_it_does_not_wait_for_ever() -> None:
    async def run() -> None:
        client = engine(Upgraded(1000))
        client.wait_s = 0.3
        with pytest.raises(EngineDiedError, match="runs fp_1, not fp_2") as raised:
            await answered(client, "a", [1])
        assert raised.value.code == "replica_lost"

    asyncio.run(run())
