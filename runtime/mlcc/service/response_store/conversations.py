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
"""An item's id, which names its answer's."""


@fast_dataclass(frozen=True)
class Entry:
    """An answer that is kept."""

    response: dict[str, Any]
    input: list[Item]
    history: list[Item]
    """What came before the input."""

    @property
    def items(self) -> list[Item]:
        """All of the conversation, the answer included."""
        return [*self.history, *self.input, *self.response["output"]]


class Conversations:
    """Those of all tenants. What is one's is not there for another."""

    def __init__(self, kept: ResponseStore | None = None) -> None:
        self._kept = kept or MemoryResponseStore()
        self._live: dict[tuple[str, str], tuple[ResponseEvents, Job]] = {}

    async def before(self, tenant: str, previous: str | None) -> list[Item]:
        """The items of the conversation that goes on. Raises InvalidRequestError if it is not kept;
        without a previous answer there are none."""
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
        """The items, each reference replaced by what it names, if that is kept. Raises
        InvalidRequestError for one that comes twice: a body could become any size."""
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
        """An answer, and what it answers."""
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
        """An answer is being made."""
        self._live[tenant, events.answer["id"]] = events, job

    def end(self, tenant: str, events: ResponseEvents) -> None:
        """It no longer is. Idempotent."""
        self._live.pop((tenant, events.answer["id"]), None)

    def current(self, tenant: str, name: str) -> Any:
        """An answer that is being made, as it is now; None = there is none of that name."""
        found = self._live.get((tenant, name))
        return found[0].snapshot() if found else None

    async def cancel(self, tenant: str, name: str) -> Any:
        """End an answer that is being made, and tell what there is of it. Raises NotFoundError, or
        InvalidRequestError for one that has ended."""
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
        """Those of an answer and its input, by their ids; none if it is not kept."""
        entry = await self._find(tenant, name)
        items = [*entry.input, *entry.response["output"]] if entry else []
        return {item["id"]: item for item in reversed(items) if isinstance(item["id"], str)}


def _unknown(name: str) -> NotFoundError:
    return NotFoundError(
        f"Response with id '{name[:80]}' not found: it was not stored, was deleted, or made room "
        "for newer ones",
        code="not_found",
    )
