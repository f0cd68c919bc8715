"""A real engine process behind `RoutedEngine`, without Ray: requests, snapshots, errors and
batched replies, in one event loop."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Iterator, Mapping
from functools import partial

import pytest

from mlcc.engine.request import Request, SamplingParams
from mlcc.errors import InvalidRequestError, MlccError
from mlcc.scale.messages import ReplicaCall, ReplyBatch
from mlcc.scale.replica import Replica
from mlcc.scale.routed_engine import RoutedEngine
from tests.helpers.toy.toy_model import Letters, open_toy

GREEDY = SamplingParams(temperature=0, max_tokens=24, ignore_eos=True)
PROMPT = Letters().encode("the same beginning of each prompt, ", add_special_tokens=False)


class Beside:
    """`Replicas` in this process: each request goes to the first that is not to be avoided."""

    def __init__(self, replicas: Mapping[str, Replica]) -> None:
        self.replicas = replicas
        self.pieces: list[ReplyBatch] = []

    async def call(self, call: ReplicaCall) -> AsyncIterator[ReplyBatch]:
        name = next(name for name in self.replicas if name not in call.avoid)
        async for piece in self.replicas[name].generate(call):
            self.pieces.append(piece)
            yield piece

    def stats(self) -> Mapping[str, Mapping[str, float]]:
        return {}


@pytest.fixture(scope="module")
def replica() -> Iterator[Replica]:
    made = Replica(partial(open_toy, 0.002), "fp_1", 64)
    yield made
    made.close()


def client(replicas: Beside, artifact: str = "fp_1") -> RoutedEngine:
    capacity = next(iter(replicas.replicas.values())).info().capacity
    return RoutedEngine(replicas, capacity, artifact, 64)


async def texts(made: RoutedEngine, *names: str) -> list[str]:
    async def one(name: str) -> str:
        job = made.submit([Request(name, PROMPT, GREEDY)], 30)
        try:
            return (await job.answers())[0].text
        finally:
            job.close()

    return await asyncio.gather(*map(one, names))


def test_all_that_an_engine_can_be_asked_through_one_loop(replica: Replica) -> None:
    """One event loop: the replica's threads belong to it."""

    async def run() -> None:
        beside = Beside({"a": replica})
        made = client(beside)
        first, second = await texts(made, "x", "y")
        assert first == second and len(first) == 24
        assert all(isinstance(piece, list) and piece for piece in beside.pieces)

        snapshot = await replica.snapshot()
        assert snapshot.artifact == "fp_1" and snapshot.page_tokens == 16
        assert snapshot.hashes and snapshot.stats is not None and snapshot.stats.requests == 2

        job = made.submit([Request("z", [1000], GREEDY)], 30)
        with pytest.raises(InvalidRequestError):
            await job.answers()
        job.close()

        foreign = client(beside, "fp_2")
        foreign.wait_s = 0.0
        with pytest.raises(MlccError, match="runs fp_1, not fp_2"):
            await texts(foreign, "foreign")

        await its_engine_dies(made, replica)

    asyncio.run(run())


async def its_engine_dies(made: RoutedEngine, replica: Replica) -> None:
    """Mid-answer: the stream ends with an error that has a type, and the next request is answered
    by the engine that comes after."""
    job = made.submit(
        [Request("w", PROMPT, SamplingParams(0, max_tokens=400, ignore_eos=True))], 30
    )
    with pytest.raises(MlccError) as raised:
        async for _ in job.events():
            pid = replica._process.pid
            assert pid is not None
            os.kill(pid, signal.SIGKILL)
    job.close()
    assert raised.value.code == "replica_lost" and "a part of the answer is out" in str(
        raised.value
    )
    assert len((await texts(made, "v"))[0]) == 24


def test_what_comes_meanwhile_goes_together() -> None:
    from mlcc.scale.replica import batched

    async def many() -> AsyncIterator[int]:
        for number in range(10):
            yield number
            if number == 4:
                await asyncio.sleep(0.05)

    async def run() -> list[list[int]]:
        return [piece async for piece in batched(many())]

    assert asyncio.run(run()) == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]
