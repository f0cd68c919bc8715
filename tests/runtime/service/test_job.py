"""One HTTP request's share of the engine: the order of its events."""

from __future__ import annotations

import asyncio

import pytest

from mlcc.engine.events import Event, Finished, TextDelta
from mlcc.service.engine_client import Job


def test_events_keep_their_order_when_a_second_prompt_is_accepted_late() -> None:
    ends = [Finished(name, "stop", 1, 1) for name in ("a", "b")]
    sent: list[Event] = [TextDelta("a", "1"), TextDelta("a", "2"), *ends]

    async def received() -> list[Event]:
        job = Job(["a", "b"], lambda name, finished: None, 60)
        job.accept()
        job.put(sent[0])
        job.accept()
        for event in sent[1:]:
            job.put(event)
        await job.accepted()
        events = [event async for _, event in job.events()]
        job.close()
        return events

    assert asyncio.run(received()) == sent


async def _parked(job: Job) -> tuple[asyncio.Task[list[Event]], list[Event]]:
    """A job whose reader waits, with a `direct` that takes texts: the reader, and what is taken."""
    taken: list[Event] = []

    def take(event: Event) -> bool:
        if is_text := isinstance(event, TextDelta) and event.text != "later":
            taken.append(event)
        return is_text

    async def read() -> list[Event]:
        return [event async for _, event in job.events()]

    job.direct = take
    reader = asyncio.create_task(read())
    await asyncio.sleep(0)
    return reader, taken


def test_events_go_direct_only_while_the_reader_waits() -> None:
    texts = [TextDelta("a", text) for text in ("1", "2", "later", "3")]
    end = Finished("a", "stop", 1, 1)

    async def run() -> None:
        job = Job(["a"], lambda name, finished: None, None)
        reader, taken = await _parked(job)
        for event in texts:
            job.put(event)
        assert taken == texts[:2], "the reader has 'later' to send first"
        await asyncio.sleep(0)
        job.put(texts[0])
        assert taken == [*texts[:2], texts[0]]
        job.put(end)
        assert await reader == [*texts[2:], end]

    asyncio.run(run())


def test_an_error_of_a_direct_write_is_the_readers() -> None:
    def fails(event: Event) -> bool:
        raise ZeroDivisionError

    async def run() -> None:
        job = Job(["a"], lambda name, finished: None, None)
        reader, _ = await _parked(job)
        job.direct = fails
        job.put(TextDelta("a", "1"))
        with pytest.raises(ZeroDivisionError):
            await reader

    asyncio.run(run())
