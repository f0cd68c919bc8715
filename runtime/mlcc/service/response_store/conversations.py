"""Conversations of the Responses API: stored answers, answers in progress, and their history.

A turn is stored once and names the one before it (`store.py`). What a request loads of the store
is bounded, and so is the number of requests that load much at once.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterable, Sequence
from typing import Any

from mlcc.api.errors import CancelledError, NotFoundError
from mlcc.api.openai_responses.answer import ResponseEvents
from mlcc.errors import InvalidRequestError
from mlcc.service.engine_client import Job
from mlcc.service.http.json_pieces import MANY_CHARACTERS, parse_lists, to_json_by_pieces
from mlcc.service.http.types import to_json
from mlcc.service.response_store.store import MemoryResponseStore, ResponseStore, Turn
from mlcc.util.fast_dataclass import fast_dataclass

Item = dict[str, Any]
_OURS = re.compile(r"[a-z]+_([0-9a-f]+)_\d+")
"""An item's id, which contains the answer's."""


@fast_dataclass(frozen=True)
class Entry:
    """A stored answer."""

    response: dict[str, Any]
    input: list[Item]
    previous: str | None = None


MOST_LOADED_BYTES = 8 << 20
"""Bytes of stored items, as JSON, that one request may load."""
MUCH_BYTES = 256 << 10
"""Requests that load more than this take turns."""
MOST_AT_ONCE = 2
MOST_RESOLVED = 256
"""Items whose references are resolved before other requests run."""


class Loading:
    """What one request loads of the store. Use it as a context, until the items are a prompt."""

    def __init__(self, turns: asyncio.Semaphore) -> None:
        self._turns, self._holds, self._bytes = turns, False, 0

    async def __aenter__(self) -> Loading:
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._holds:
            self._turns.release()

    async def add(self, count: int, field: str) -> None:
        """Wait until `count` bytes more may be loaded for a field of the request. Raises
        InvalidRequestError beyond the bound."""
        self._bytes += count
        if self._bytes > MOST_LOADED_BYTES:
            raise InvalidRequestError(
                f"the stored conversation has {self._bytes} bytes, and at most "
                f"{MOST_LOADED_BYTES} are loaded; send a shorter one in 'input'",
                param=field,
                code="context_length_exceeded",
            )
        if self._bytes > MUCH_BYTES and not self._holds:
            await self._turns.acquire()
            self._holds = True


class Conversations:
    """The conversations of all tenants; each tenant sees only its own."""

    def __init__(self, kept: ResponseStore | None = None) -> None:
        self._kept = kept or MemoryResponseStore()
        self._turns = asyncio.Semaphore(MOST_AT_ONCE)
        self._live: dict[tuple[str, str], tuple[ResponseEvents, Job]] = {}

    def loading(self) -> Loading:
        """A request begins to load."""
        return Loading(self._turns)

    async def before(self, tenant: str, previous: str | None, loading: Loading) -> list[Item]:
        """The items of the previous conversation; none without a previous answer. Raises
        InvalidRequestError if it is not stored, or too large."""
        if previous is None:
            return []
        items = await self.history(tenant, previous, loading)
        if items is None:
            raise InvalidRequestError(
                f"Previous response with id '{previous[:80]}' not found: it or one before it was "
                "not stored, was deleted, or made room for newer ones; send the conversation in "
                "'input'",
                param="previous_response_id",
                code="previous_response_not_found",
            )
        return items

    async def history(
        self, tenant: str, name: str, loading: Loading, whole: bool = True
    ) -> list[Item] | None:
        """The items of the conversation that ends with a response; None if a turn of it is not
        stored. whole: False = those of the turns that are. Raises InvalidRequestError if it is too
        large."""
        chain = await self._kept.chain(tenant, name)
        if whole and not chain.complete:
            return None
        await loading.add(chain.bytes, "previous_response_id")
        items: list[Item] = []
        for each in chain.names:
            text = await self._kept.items(tenant, each)
            if text is None:  # evicted meanwhile
                return None
            turn = await _parsed(text)
            items += [*turn["input"], *turn["output"]]
            await asyncio.sleep(0)  # other requests run between the turns
        return items

    async def resolved(self, tenant: str, items: Iterable[Item], loading: Loading) -> list[Any]:
        """The items, with each reference replaced by the stored item it names. Raises
        InvalidRequestError for one that is named twice: a body could grow to any size."""
        made: list[Any] = []
        found: dict[str, dict[str, Item]] = {}
        seen: set[str] = set()
        for number, item in enumerate(items):
            if number % MOST_RESOLVED == MOST_RESOLVED - 1:
                await asyncio.sleep(0)  # other requests run between
            name = item.get("id") if item.get("type") == "item_reference" else None
            if not isinstance(name, str) or not (ours := _OURS.fullmatch(name)):
                made.append(item)
                continue
            if name in seen:
                raise InvalidRequestError(
                    f"'input' refers to the item '{name[:80]}' twice; refer to each once",
                    param="input",
                    code="invalid_value",
                )
            seen.add(name)
            if ours[1] not in found:
                found[ours[1]] = await self._items(tenant, f"resp_{ours[1]}", loading)
            made.append(found[ours[1]].get(name, item))
        return made

    async def keep(self, tenant: str, name: str, turn: Turn) -> None:
        """Store an answer with its input."""
        await self._kept.put(tenant, name, turn)

    async def get(self, tenant: str, name: str) -> Entry:
        """Raises NotFoundError."""
        if (entry := await self._find(tenant, name)) is None:
            raise _unknown(name)
        return entry

    async def delete(self, tenant: str, name: str) -> None:
        """Raises NotFoundError."""
        if not await self._kept.delete(tenant, name):
            raise _unknown(name)

    def begin(self, tenant: str, events: ResponseEvents, job: Job) -> None:
        """Register an answer in progress."""
        self._live[tenant, events.answer["id"]] = events, job

    def end(self, tenant: str, events: ResponseEvents) -> None:
        """Remove an answer in progress. Idempotent."""
        self._live.pop((tenant, events.answer["id"]), None)

    def current(self, tenant: str, name: str) -> Any:
        """The current state of an answer in progress; None = there is none with this name."""
        found = self._live.get((tenant, name))
        return found[0].snapshot() if found else None

    async def cancel(self, tenant: str, name: str) -> Any:
        """Cancel an answer in progress and return its partial output. Raises NotFoundError, or
        InvalidRequestError if it has ended."""
        found = self._live.get((tenant, name))
        if found is None:
            entry = await self.get(tenant, name)
            raise InvalidRequestError(
                f"the response '{name[:80]}' has ended ({entry.response['status']}) and cannot be "
                "cancelled",
                code="invalid_value",
            )
        events, job = found
        job.fail(CancelledError("the request was cancelled"))
        return {**events.snapshot(), "status": "cancelled"}

    async def _find(self, tenant: str, name: str) -> Entry | None:
        if (turn := await self._kept.get(tenant, name)) is None:
            return None
        items = await _parsed(turn.items)
        response = {**json.loads(turn.response), "output": items["output"]}
        return Entry(response, items["input"], turn.previous)

    async def _items(self, tenant: str, name: str, loading: Loading) -> dict[str, Item]:
        """The items of an answer and its input by their ids; none if it is not stored."""
        if (turn := await self._kept.get(tenant, name)) is None:
            return {}
        await loading.add(len(turn.items.encode()), "input")
        stored = await _parsed(turn.items)
        items = [*stored["input"], *stored["output"]]
        return {item["id"]: item for item in reversed(items) if isinstance(item.get("id"), str)}


def turn_of(response: Any, given: Sequence[Item], previous: str | None) -> Turn:
    """What is stored of an answer and its input. previous: the response that it continues."""
    head = {name: value for name, value in response.items() if name != "output"}
    items = {"input": [*given], "output": response["output"]}
    return Turn(to_json(head), to_json_by_pieces(items), previous)


async def _parsed(items: str) -> dict[str, list[Item]]:
    """The items of a turn, parsed in a thread if they are many."""
    if len(items) <= MANY_CHARACTERS:
        return parse_lists(items)
    return await asyncio.to_thread(parse_lists, items)


def _unknown(name: str) -> NotFoundError:
    return NotFoundError(
        f"Response with id '{name[:80]}' not found: it was not stored, was deleted, or made room "
        "for newer ones",
        code="not_found",
    )
