"""Disaggregated prefill and decode in real engine processes without Ray: equal tokens with a single
engine, also if the decoding replica dies."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import aclosing

import pytest

from mlcc.engine.events import TextDelta
from mlcc.engine.request import Request, SamplingParams
from mlcc.model.kv_transfer import without_pages
from mlcc.scale.experimental.disaggregated import DisaggregatedEngine
from mlcc.scale.fleet import Prompt
from mlcc.scale.messages import Handoff, ReplicaCall, ReplyBatch
from mlcc.scale.replica import Replica
from mlcc.scale.routed_engine import MAX_LOST, ReplicaLostError, RoutedEngine, StartingReplicaError
from mlcc.worker.messages import Events
from tests.helpers.toy.toy_model import CAPACITY, Letters, open_moving_toy

PROMPT = Letters().encode("a prompt that is longer than a page, or two. ", add_special_tokens=False)
PARAMS = {
    "greedy": SamplingParams(temperature=0, max_tokens=40, ignore_eos=True),
    "seeded": SamplingParams(temperature=1.5, seed=7, max_tokens=40, ignore_eos=True),
    "one token": SamplingParams(temperature=0, max_tokens=1, ignore_eos=True),
    "stop": SamplingParams(
        temperature=0, max_tokens=40, stop=("never generated",), ignore_eos=True
    ),
    "penalties": SamplingParams(0.0, max_tokens=40, frequency_penalty=1.0, ignore_eos=True),
}


class Side:
    """`Replicas`: one, which is lost after so many tokens, so often."""

    def __init__(self, replica: Replica, lost_after: int = 0, times: int = 0) -> None:
        self.replica, self.lost_after, self.times = replica, lost_after, times
        self.asked: list[ReplicaCall] = []

    async def call(self, call: ReplicaCall) -> AsyncIterator[ReplyBatch]:
        self.asked.append(call)
        tokens, fails = 0, self.times > 0
        self.times -= fails
        if fails and not self.lost_after:
            raise ReplicaLostError("a replica was killed")
        async with aclosing(self.replica.generate(call)) as pieces:
            async for event_batch in (
                event_batch async for piece in pieces for event_batch in piece
            ):
                yield [event_batch]
                events = event_batch.events if isinstance(event_batch, Events) else ()
                tokens += sum(len(e.token_ids) for e in events if isinstance(e, TextDelta))
                if fails and tokens >= self.lost_after:
                    break
        if fails:
            raise ReplicaLostError("a replica was killed")

    def stats(self) -> Mapping[str, Mapping[str, float]]:
        return {}


@pytest.fixture(scope="module")
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    made = asyncio.new_event_loop()
    yield made
    made.close()


@pytest.fixture(scope="module")
def replicas() -> Iterator[list[Replica]]:
    made = [Replica(open_moving_toy, "", 64) for _ in range(2)]
    yield made
    for replica in made:
        replica.close()


async def answered(
    client: RoutedEngine, params: SamplingParams
) -> tuple[str, tuple[int, ...], str]:
    job = client.submit([Request("a", PROMPT, params)], 60)
    text, tokens = "", ()
    try:
        async for _, event in job.events():
            if isinstance(event, TextDelta):
                text, tokens = text + event.text, tokens + event.token_ids
        return text, tokens, job.finished[0].reason
    finally:
        job.close()


@pytest.mark.feature("moving", "cpu", "runs")
@pytest.mark.parametrize("name", PARAMS)
@pytest.mark.parametrize(("lost_after", "times"), [(0, 0), (0, 1), (1, 1), (5, 2)])
def test_the_same_tokens_as_together(
    loop: asyncio.AbstractEventLoop,
    replicas: list[Replica],
    name: str,
    lost_after: int,
    times: int,
) -> None:
    params = PARAMS[name]
    together = RoutedEngine(Side(replicas[0]), CAPACITY, "", 64)
    prefill, decode = Side(replicas[0]), Side(replicas[1], lost_after, times)
    apart = DisaggregatedEngine(prefill, decode, CAPACITY, "", 64)
    expected = loop.run_until_complete(answered(together, params))
    found = loop.run_until_complete(answered(apart, params))
    assert found == expected and len(found[1]) == params.max_tokens
    assert len(prefill.asked) == 1 and prefill.asked[0].prefill_only
    assert len(decode.asked) == (0 if name == "one token" else 1 + times)
    assert all(isinstance(call.state, bytes) for call in decode.asked)


class Starting(Side):
    """Replicas whose engine was lost and is starting again."""

    async def call(self, call: ReplicaCall) -> AsyncIterator[ReplyBatch]:
        self.asked.append(call)
        if len(self.asked) <= MAX_LOST + 1:
            raise StartingReplicaError("a replica's engine is being started", "r0")
        async with aclosing(self.replica.generate(call)) as pieces:
            async for piece in pieces:
                yield piece


def test_it_waits_for_an_engine_that_is_being_started(
    loop: asyncio.AbstractEventLoop, replicas: list[Replica]
) -> None:
    """Longer than for one that is lost: nothing is, by that."""
    together = RoutedEngine(Side(replicas[0]), CAPACITY, "", 64)
    decode = Starting(replicas[1])
    apart = DisaggregatedEngine(Side(replicas[0]), decode, CAPACITY, "", 64)
    found = loop.run_until_complete(answered(apart, PARAMS["greedy"]))
    assert found == loop.run_until_complete(answered(together, PARAMS["greedy"]))
    assert len(decode.asked) == MAX_LOST + 2 and decode.asked[-1].avoid[0] == "r0"


def test_what_is_handed_is_small_without_its_pages(
    loop: asyncio.AbstractEventLoop, replicas: list[Replica]
) -> None:
    async def handed() -> Handoff:
        call = ReplicaCall(
            Request("h", PROMPT, PARAMS["greedy"]), "", Prompt(len(PROMPT)), prefill_only=True
        )
        pieces = [
            event_batch async for piece in replicas[0].generate(call) for event_batch in piece
        ]
        assert isinstance(pieces[-1], Handoff)
        return pieces[-1]

    found = loop.run_until_complete(handed())
    assert len(found.tokens_only) < len(found.state)
    assert without_pages(found.state, CAPACITY.groups) == found.tokens_only


def test_where_the_object_store_is_full_what_was_computed_is_computed_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Ray spills to the disk before it says so; where that is full too, the note goes alone."""
    ray = pytest.importorskip("ray", reason="needs ray: pip install mlcc[ray]")
    from mlcc.scale.deployments import _stored

    def full(_: object) -> None:
        raise ray.exceptions.ObjectStoreFullError("no room")

    monkeypatch.setattr(ray, "put", full)
    assert asyncio.run(_stored(Handoff(b"all", b"note"))) == Handoff(b"note", b"note")
