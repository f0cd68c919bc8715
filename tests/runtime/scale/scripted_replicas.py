"""Scripted replicas for `RoutedEngine`, without Ray. They answer a request with its prompt's
tokens, one at a time, until a test kills them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Mapping

from mlcc.engine.events import Finished, TextDelta
from mlcc.scale.fleet import Fleet
from mlcc.scale.messages import ReplicaCall, ReplyBatch
from mlcc.scale.routed_engine import ReplicaLostError
from mlcc.worker.messages import Accepted, Events


class ScriptedReplicas:
    """`Replicas` over a `Fleet`. `pause_s`: between tokens."""

    def __init__(self, count: int, pause_s: float = 0.0) -> None:
        self.fleet = Fleet(seed=3)
        self.names = [f"r{n}" for n in range(count)]
        self.fleet.set_engines(self.names)
        self.killed: dict[str, asyncio.Event] = {name: asyncio.Event() for name in self.names}
        self.ended: Counter[str] = Counter()
        """The number of complete answers of each request."""
        self.asked: list[str] = []
        self._pause_s = pause_s

    def kill(self, name: str) -> None:
        """All that it is asked is lost; another is there in its place at once."""
        self.killed[name].set()
        self.killed[name] = asyncio.Event()

    async def call(self, call: ReplicaCall) -> AsyncIterator[ReplyBatch]:
        fit = {name for name in self.names if name not in call.avoid}
        choice = self.fleet.choose(call.prompt, 0.0, among=fit or set(self.names))
        assert choice is not None
        self.asked.append(choice.name)
        dead, request = self.killed[choice.name], call.request
        try:
            await self._alive(dead, choice.name)
            yield [Accepted(request.id)]
            for token in request.prompt:
                await self._alive(dead, choice.name)
                yield [Events([TextDelta(request.id, f"{token},", (token,))])]
            await self._alive(dead, choice.name)
            self.ended[request.id] += 1
            size = len(request.prompt)
            yield [Events([Finished(request.id, "stop", size, size)])]
        finally:
            self.fleet.ended(choice.name)

    def stats(self) -> Mapping[str, Mapping[str, float]]:
        return {name: {"routed": self.asked.count(name), "pages": 8} for name in self.names}

    async def _alive(self, dead: asyncio.Event, name: str) -> None:
        await asyncio.sleep(self._pause_s)
        if dead.is_set():
            raise ReplicaLostError("a replica was killed", name)
