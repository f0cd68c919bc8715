"""Answers of a tab whose tokens are found in their sound, between two steps; the toy that sees,
whose images stand for windows of sound."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

from mlcc.engine.alignment import Alignment
from mlcc.engine.events import Finished
from mlcc.engine.request import Request
from mlcc.errors import DeviceError
from tests.runtime.embedded.test_tab_images import Loop, request

TOKENS = 8


def aligned(name: str) -> Request:
    return replace(request(name, f"picture {name}", tokens=TOKENS), aligned_rows=3)


def ends(loop: Loop) -> dict[str, Finished]:
    return {event.request_id: event for event in loop.events if isinstance(event, Finished)}


def test_an_answer_ends_with_its_rows_or_fails_alone() -> None:
    """Its pages are not written meanwhile: no step is in flight, and none is planned."""

    async def main() -> None:
        loop = Loop()
        tower: Any = loop.tower
        tower.gate.set()
        asked: list[str] = []

        async def token_rows(alignment: Alignment, *given: Any) -> tuple[int, ...]:
            name, steps = alignment.finished.request_id, loop.engine.stats().steps
            asked.append(name)
            await asyncio.sleep(0.01)
            assert name not in ends(loop) and loop.engine.stats().steps == steps
            assert len(alignment.tokens) == TOKENS - 1 and alignment.rows == 3
            if name == "broken":
                raise DeviceError("the GPU failed")
            return (*range(TOKENS - 1),)

        tower.token_rows = token_rows
        loop.add(aligned("a"), aligned("broken"), request("plain", tokens=3 * TOKENS))
        await loop.idle()
        found = ends(loop)
        assert sorted(asked) == ["a", "broken"]
        assert found["a"].token_rows == (*range(TOKENS - 1),)
        assert (found["broken"].reason, found["broken"].token_rows) == ("error", ())
        assert "the GPU failed" in str(found["broken"].error)
        assert found["plain"].reason == "length" and not found["plain"].token_rows

    asyncio.run(main())
