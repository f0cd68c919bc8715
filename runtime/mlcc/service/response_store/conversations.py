"""Conversations of the Responses API: stored answers, answers in progress, and their history.

An entry holds its whole conversation, so that none depends on another that may be evicted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any

from mlcc.api.errors import CancelledError, NotFoundError
from mlcc.api.openai_responses.answer import ResponseEvents
from mlcc.errors import InvalidRequestError
from mlcc.service.engine_client import Job
from mlcc.service.http.types import to_json
from mlcc.service.response_store.store import MemoryResponseStore, ResponseStore
from mlcc.util.fast_dataclass import fast_dataclass

Item = dict[str, Any]
_OURS = re.compile(r"[a-z]+_([0-9a-f]+)_\d+")
"""An item's id, which contains the answer's."""


@fast_dataclass(frozen=True)
class Entry:
    """A stored answer."""

    response: dict[str, Any]
    input: list[Item]
    history: list[Item]
    """Items before the input."""

    @property
    def items(self) -> list[Item]:
        """The whole conversation, with the answer."""
        return [*self.history, *self.input, *self.response["output"]]


class Conversations:
    """The conversations of all tenants; each tenant sees only its own."""

    def __init__(self, kept: ResponseStore | None = None) -> None:
        self._kept = kept or MemoryResponseStore()
        self._live: dict[tuple[str, str], tuple[ResponseEvents, Job]] = {}

    async def before(self, tenant: str, previous: str | None) -> list[Item]:
        """The items of the previous conversation; none without a previous answer. Raises
        InvalidRequestError if it is not stored."""
        if previous is None:
            return []
        if (entry := await self._find(tenant, previous)) is None:
            raise InvalidRequestError(
                f"Previous response with id '{previous[:80]}' not found: it was not stored, was "
                "deleted, or made room for newer ones; send the conversation in 'input'",
                param="previous_response_id",
                code="previous_response_not_found",
            )
        return entry.items

    async def resolved(self, tenant: str, items: Iterable[Item]) -> list[Any]:
        """The items, with each reference replaced by the stored item it names. Raises
        InvalidRequestError for one that is named twice: a body could grow to any size."""
        made: list[Any] = []
        found: dict[str, dict[str, Item]] = {}
        seen: set[str] = set()
        for item in items:
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
                found[ours[1]] = await self._items(tenant, f"resp_{ours[1]}")
            made.append(found[ours[1]].get(name, item))
        return made

    async def keep(
        self, tenant: str, response: Any, given: Sequence[Item], history: Sequence[Item]
    ) -> None:
        """Store an answer with its input."""
        entry = {"response": response, "input": given, "history": history}
        await self._kept.put(tenant, response["id"], to_json(entry))

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
        text = await self._kept.get(tenant, name)
        return None if text is None else Entry(**json.loads(text))

    async def _items(self, tenant: str, name: str) -> dict[str, Item]:
        """The items of an answer and its input by their ids; none if it is not stored."""
        entry = await self._find(tenant, name)
        items = [*entry.input, *entry.response["output"]] if entry else []
        return {item["id"]: item for item in reversed(items) if isinstance(item["id"], str)}


def _unknown(name: str) -> NotFoundError:
    return NotFoundError(
        f"Response with id '{name[:80]}' not found: it was not stored, was deleted, or made room "
        "for newer ones",
        code="not_found",
    )
