"""Prefill and decode apart: one kind of replica computes prompts and the first token, another goes
on with what was computed (DistServe, Zhong et al., 2024; Splitwise, Patel et al., 2024).

The answer is the one of a single engine, token for token: draws go by position, and what follows
from tokens is made again by saying them. So an answer whose decoding replica dies goes on in
another, which computes it again, where with replicas of one kind it would end with an error.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

from mlcc.engine.batch.batch import Capacity
from mlcc.engine.events import TextDelta
from mlcc.model.kv_transfer import without_pages
from mlcc.scale.messages import Handoff, ReplicaReply, ReplicaRequest
from mlcc.scale.routed_engine import (
    AGAIN_S,
    MOST_LOST,
    ReplicaLostError,
    Replicas,
    RoutedEngine,
    StartingReplicaError,
)
from mlcc.scale.routing import Prompt
from mlcc.worker.messages import Events


class DisaggregatedEngine(RoutedEngine):
    """A `RoutedEngine` whose replicas compute prompts; `decode` are those that go on."""

    def __init__(
        self,
        prefill: Replicas,
        decode: Replicas,
        capacity: Capacity,
        artifact: str,
        most_live: int,
    ) -> None:
        super().__init__(prefill, capacity, artifact, most_live)
        self._decode = decode
        self._handed: dict[str, Handoff] = {}
        self._said: dict[str, list[int]] = {}
        """Tokens of answers that go on elsewhere, since they were handed over."""

    async def counters(self) -> dict[str, Any]:
        """Of both kinds."""
        return self._counted({**self._replicas.told(), **self._decode.told()})

    async def _once(self, ask: ReplicaRequest) -> ReplicaLostError | None:
        name = ask.request.id
        try:
            error = await super()._once(replace(ask, leaves=True))
            now, lost, avoid = asyncio.get_running_loop().time, 0, list[str]()
            patience = now() + self.wait_s
            while lost < MOST_LOST and (handed := self._handed.get(name)) is not None:
                error = await self._go_on(replace(ask, avoid=tuple(avoid)), handed)
                if error is None:
                    return None
                self.retried += 1
                starting = isinstance(error, StartingReplicaError) and now() < patience
                if starting:  # nothing was lost by that
                    await asyncio.sleep(AGAIN_S)
                lost += not starting
                avoid += [error.replica] if error.replica else []
            return error
        finally:
            self._handed.pop(name, None)
            self._said.pop(name, None)

    async def _go_on(self, ask: ReplicaRequest, handed: Handoff) -> ReplicaLostError | None:
        """Ask a decoding replica. What it says before it is lost is a part of the answer."""
        name, said = ask.request.id, self._said.setdefault(ask.request.id, [])
        groups = self.capacity.groups
        moved = without_pages(handed.note, groups, said) if said else handed.moved
        prompt = Prompt(len(ask.request.prompt))
        error = await self._asked(self._decode, replace(ask, moved=moved, prompt=prompt))
        if error is not None and not said and moved is not handed.note:
            self._handed[name] = replace(handed, moved=handed.note)  # perhaps it is what was lost
        return error

    def _take(self, request_id: str, said: ReplicaReply) -> bool:
        if isinstance(said, Handoff):
            self._handed[request_id] = said
            return True
        if isinstance(said, Events) and (known := self._said.get(request_id)) is not None:
            for event in said.events:
                known.extend(event.token_ids if isinstance(event, TextDelta) else ())
        return super()._take(request_id, said)
