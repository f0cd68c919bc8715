"""Disaggregated prefill and decode: prefill replicas compute the prompt and the first token, decode
replicas continue from the transferred KV cache (DistServe, Zhong et al., 2024; Splitwise, Patel et
al., 2024).

The output equals that of a single engine, token for token: random draws are keyed by position, and
state that follows from the tokens is recomputed from them. If a decode replica dies, another one
recomputes the state and continues, where replicas of one kind would end the answer with an error.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

from mlcc.engine.batch.batch import Capacity
from mlcc.engine.events import TextDelta
from mlcc.model.kv_transfer import without_pages
from mlcc.scale.fleet import Prompt
from mlcc.scale.messages import Handoff, ReplicaCall, ReplicaReply
from mlcc.scale.routed_engine import (
    MAX_LOST,
    RETRY_S,
    ReplicaLostError,
    Replicas,
    RoutedEngine,
    StartingReplicaError,
)
from mlcc.worker.messages import Events


class DisaggregatedEngine(RoutedEngine):
    """A `RoutedEngine` on prefill replicas; `decode` are the decode replicas."""

    def __init__(
        self,
        prefill: Replicas,
        decode: Replicas,
        capacity: Capacity,
        artifact: str,
        max_in_flight: int,
    ) -> None:
        super().__init__(prefill, capacity, artifact, max_in_flight)
        self._decode = decode
        self._handoffs: dict[str, Handoff] = {}
        self._emitted: dict[str, list[int]] = {}
        """Tokens delivered since the handoff, by request."""

    async def counters(self) -> dict[str, Any]:
        """Return the counters of both kinds of replicas."""
        return self._sum_counters({**self._replicas.stats(), **self._decode.stats()})

    async def _try_once(self, call: ReplicaCall) -> ReplicaLostError | None:
        name = call.request.id
        try:
            error = await super()._try_once(replace(call, prefill_only=True))
            now, lost, avoid = asyncio.get_running_loop().time, 0, list[str]()
            patience = now() + self.wait_s
            while lost < MAX_LOST and (handoff := self._handoffs.get(name)) is not None:
                error = await self._continue(replace(call, avoid=tuple(avoid)), handoff)
                if error is None:
                    return None
                self.retried += 1
                starting = isinstance(error, StartingReplicaError) and now() < patience
                if starting:  # not counted as a loss
                    await asyncio.sleep(RETRY_S)
                lost += not starting
                avoid += [error.replica] if error.replica else []
            return error
        finally:
            self._handoffs.pop(name, None)
            self._emitted.pop(name, None)

    async def _continue(self, call: ReplicaCall, handoff: Handoff) -> ReplicaLostError | None:
        """Continue the request on a decode replica. Tokens delivered before it is lost stay part of
        the answer."""
        name, emitted = call.request.id, self._emitted.setdefault(call.request.id, [])
        groups = self.capacity.groups
        state = without_pages(handoff.tokens_only, groups, emitted) if emitted else handoff.state
        prompt = Prompt(len(call.request.prompt))
        error = await self._call(self._decode, replace(call, state=state, prompt=prompt))
        if error is not None and not emitted and state is not handoff.tokens_only:
            # the state itself may be what was lost
            self._handoffs[name] = replace(handoff, state=handoff.tokens_only)
        return error

    def _handle_reply(self, request_id: str, reply: ReplicaReply) -> bool:
        if isinstance(reply, Handoff):
            self._handoffs[request_id] = reply
            return True
        if isinstance(reply, Events) and (emitted := self._emitted.get(request_id)) is not None:
            for event in reply.events:
                emitted.extend(event.token_ids if isinstance(event, TextDelta) else ())
        return super()._handle_reply(request_id, reply)
