"""One HTTP request's share of the engine: the order of its events."""

from __future__ import annotations

import asyncio

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
