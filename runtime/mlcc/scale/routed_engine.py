"""An `EngineClient` over several replicas: sends each request to one, and to another if that one is
lost before any output was delivered.

After the first delivered token a retry is impossible: another replica would sample other tokens.
Such a stream ends with a typed error. Does not import ray: the port `Replicas` hides what the
replicas are and how one is chosen.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from typing import Any, Protocol

from mlcc.api.errors import BusyError, EngineDiedError
from mlcc.engine.batch.batch import Capacity
from mlcc.engine.events import Finished
from mlcc.engine.kv_cache.prefix_digest import prefix_hashes
from mlcc.engine.kv_cache.radix_tree import RadixTree
from mlcc.engine.request import Request
from mlcc.errors import DeviceError, MlccError
from mlcc.scale.fleet import Prompt
from mlcc.scale.messages import ReplicaCall, ReplicaReply, ReplyBatch
from mlcc.service.engine_client import EngineClient
from mlcc.worker.messages import Dropped, Events, Refused

log = logging.getLogger("mlcc.scale")

MAX_LOST = 3
"""Replicas that a request may lose. A request that was present each time may be the cause."""
WAIT_S = 60.0
"""Seconds that a request waits for a replica of its artifact (in a rolling upgrade they are
replaced one by one) or for one that receives it (a dead replica may be chosen until its death is
noticed)."""
RETRY_S = 0.25


class ReplicaLostError(MlccError):
    """A replica ended or cannot be reached, and its requests are lost. `replica` is its name, if
    known."""

    http_status = 503

    def __init__(self, message: str, replica: str = "") -> None:
        super().__init__(message, code="replica_lost")
        self.replica = replica
        self.received = True
        """Whether the replica received the request, which may then be the cause."""


class ForeignReplicaError(ReplicaLostError):
    """The replica runs another artifact than the caller. Nothing was lost; another replica can
    answer."""


class StartingReplicaError(ReplicaLostError):
    """The replica's engine is restarting. Nothing was lost; another replica can answer."""


class Replicas(Protocol):
    """Port: a set of replicas that answer requests."""

    def call(self, call: ReplicaCall, /) -> AsyncIterator[ReplyBatch]:
        """Stream the replies of one replica until the request ends. Closing the stream cancels the
        request. Raises ReplicaLostError."""
        ...

    def stats(self) -> Mapping[str, Mapping[str, float]]:
        """Return the last reported statistics and routing counters, by replica name."""
        ...


class RoutedEngine(EngineClient):
    """The engine client of one model. `capacity` is that of each replica."""

    def __init__(
        self, replicas: Replicas, capacity: Capacity, artifact: str, max_in_flight: int
    ) -> None:
        super().__init__(max_in_flight)
        self._replicas, self._capacity, self._artifact = replicas, capacity, artifact
        self._block = RadixTree(capacity.groups).block
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self.wait_s = WAIT_S
        self.retried = 0
        """Requests that were sent to another replica."""

    @property
    def capacity(self) -> Capacity:
        return self._capacity

    async def counters(self) -> dict[str, Any]:
        """Return the last reported counters: summed, and by replica."""
        return self._sum_counters(self._replicas.stats())

    def _sum_counters(self, each: Mapping[str, Mapping[str, float]]) -> dict[str, Any]:
        self.check_alive()
        total: Counter[str] = Counter()
        for stats in each.values():
            total.update(stats)
        total["retried"] = self.retried
        return {"engine": dict(total) if each else None, "replicas": each}

    def stop(self, why: str = "the server is shutting down") -> None:
        """Fail all waiting requests. Idempotent."""
        self._die(EngineDiedError(f"{why}; the answer is lost", code="engine_died"))
        for task in self._tasks.values():
            task.cancel()

    def _add(self, request: Request) -> None:
        task = asyncio.get_running_loop().create_task(self._run_request(request))
        self._tasks[request.id] = task
        task.add_done_callback(lambda _: self._tasks.pop(request.id, None))

    def _cancel(self, request_id: str) -> None:
        if task := self._tasks.get(request_id):
            task.cancel()

    async def _run_request(self, request: Request) -> None:
        """Retry until the request is answered, refused, or lost MAX_LOST times."""
        tokens, session = len(request.prompt), request.sampling_group
        beginnings = prefix_hashes(request.scope, request.prompt, self._block)
        prompt = Prompt(tokens, beginnings, session)
        avoid: list[str] = []
        now = asyncio.get_running_loop().time
        patience = now() + self.wait_s
        while True:
            call = ReplicaCall(request, self._artifact, prompt, tuple(avoid))
            error = await self._try_once(call)
            if error is None or (live := self._owners.get(request.id)) is None:
                return
            foreign = isinstance(error, ForeignReplicaError)
            starting = isinstance(error, StartingReplicaError)
            waits = foreign or starting or not error.received
            waits = waits and not live.started and now() < patience
            live.lost += not waits
            if live.started or live.lost >= MAX_LOST:
                return self._give_up(request.id, error, live.started)
            if waits and not (starting and error.replica and error.replica not in avoid):
                await asyncio.sleep(RETRY_S)
            if foreign and waits:
                continue
            avoid += [error.replica] if error.replica else []
            self.retried += 1
            log.warning("%s; it is asked once more", error)

    async def _try_once(self, call: ReplicaCall) -> ReplicaLostError | None:
        """Send the request to one replica. Returns the error if that replica was lost."""
        return await self._call(self._replicas, call)

    async def _call(self, replicas: Replicas, call: ReplicaCall) -> ReplicaLostError | None:
        ended = received = False
        try:
            async for piece in replicas.call(call):
                received = True
                for reply in piece:
                    ended = self._handle_reply(call.request.id, reply) or ended
        except ReplicaLostError as error:
            error.received = received
            return error
        except MlccError as error:
            self._refuse(call.request.id, error)
        except Exception as error:  # a bug: the waiting request must get an error
            log.exception("a replica cannot be asked")
            self._refuse(call.request.id, DeviceError(f"a replica cannot be asked: {error!r}"))
        else:
            if not ended:
                return ReplicaLostError("a replica ended a stream before the answer's end")
        return None

    def _handle_reply(self, request_id: str, reply: ReplicaReply) -> bool:
        """Handle one reply; return whether it ends the request."""
        if isinstance(reply, Events):
            self._deliver(reply.events)
            return any(isinstance(event, Finished) for event in reply.events)
        if isinstance(reply, Refused):
            raise reply.error
        if isinstance(reply, Dropped):
            raise _as_lost(reply.error)
        self._accept(request_id)
        return False

    def _give_up(self, request_id: str, error: ReplicaLostError, begun: bool) -> None:
        live = self._owners[request_id]
        what = "a part of the answer is out" if begun else f"it was lost {live.lost} times"
        message = f"{error.message}; {what}, so it is not asked again. Send the request once more"
        self._fail_jobs([live.job], EngineDiedError(message, code="replica_lost", cause=error))


def _as_lost(error: MlccError) -> MlccError:
    """Map an engine failure to ReplicaLostError: the request is not the cause."""
    if isinstance(error, EngineDiedError | BusyError):
        return ReplicaLostError(error.message)
    return error
