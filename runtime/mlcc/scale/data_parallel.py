"""Data parallelism on one machine: an engine process for each of several devices, behind one
server.

Uses no ray and no network. Requests are routed as among replicas of a cluster (`routing`), and
retried in the same way if a device's engine dies (`routed_engine`).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial

from mlcc.engine.batch.batch import Capacity
from mlcc.errors import DeviceError
from mlcc.model.model import Model
from mlcc.scale.fleet import Fleet
from mlcc.scale.messages import ReplicaCall, ReplyBatch
from mlcc.scale.replica import Replica
from mlcc.scale.replica_stats import ReplicaStats, status_of
from mlcc.scale.routed_engine import RoutedEngine
from mlcc.server.asgi import Settings

log = logging.getLogger("mlcc.scale")

_POLL_S = 1.0


class DeviceReplicas:
    """`Replicas` on engines of this process, named by their device numbers."""

    def __init__(self, replicas: Mapping[str, Replica]) -> None:
        self._replicas, self._fleet, self._stats = replicas, Fleet(), ReplicaStats()
        self._fleet.set_engines(replicas)

    async def call(self, call: ReplicaCall) -> AsyncIterator[ReplyBatch]:
        """Send a request to the chosen engine; see `Replicas.call`."""
        with self._choose(call) as replica:
            async for piece in replica.generate(call):
                yield piece

    def stats(self) -> Mapping[str, Mapping[str, float]]:
        """Counters of each engine; see `Replicas.stats`."""
        return self._stats.counters()

    async def snapshot(self) -> None:
        """Poll the snapshot of each engine until cancelled."""
        while True:
            for name, replica in self._replicas.items():
                snapshot = self._stats.snapshots[name] = await replica.snapshot()
                self._fleet.update(name, status_of(snapshot), time.monotonic())
            await asyncio.sleep(_POLL_S)

    @contextmanager
    def _choose(self, call: ReplicaCall) -> Iterator[Replica]:
        """Choose an engine for the request, among the running ones if there are any; the others are
        restarting."""
        replicas = self._replicas
        among = {name for name in replicas if replicas[name].ready and name not in call.avoid}
        choice = self._fleet.choose(call.prompt, time.monotonic(), among or None)
        assert choice is not None
        self._stats.routed[choice.name] += 1
        self._stats.expected_hits[choice.name] += choice.hit
        try:
            yield replicas[choice.name]
        finally:
            self._fleet.ended(choice.name)


class DataParallelEngines:
    """An `EngineHandle` with an engine on each device. `open_model` takes `device`.

    Raises what `open_model` raises, and leaves no process behind then.
    """

    def __init__(
        self,
        open_model: Callable[..., Model],
        settings: Settings,
        artifact: str,
        devices: Sequence[int],
    ) -> None:
        self._replicas = _open_replicas(open_model, artifact, settings.max_queue, devices)
        found = {name: replica.info() for name, replica in self._replicas.items()}
        self.capacity = min((each.capacity for each in found.values()), key=_by_capacity)
        self.notes = tuple(
            f"device {name}: {note}" for name, each in found.items() for note in each.notes
        )
        live = settings.max_queue + sum(each.capacity.max_batch for each in found.values())
        self._replica_set = DeviceReplicas(self._replicas)
        self.client = RoutedEngine(self._replica_set, self.capacity, artifact, live)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._polling: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start polling the engines."""
        self._loop = asyncio.get_running_loop()
        self._polling = self._loop.create_task(self._replica_set.snapshot())

    def stop(self) -> None:
        if self._polling is not None:
            self._polling.cancel()
        self.client.stop()

    def stop_soon(self) -> None:
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self.stop)

    def close(self) -> None:
        for replica in self._replicas.values():
            replica.close()


def _open_replicas(
    open_model: Callable[..., Model], artifact: str, max_queue: int, devices: Sequence[int]
) -> dict[str, Replica]:
    """Open the replicas in parallel: each reads its own weights."""
    with ThreadPoolExecutor(len(devices)) as pool:
        opening = {
            str(number): pool.submit(
                Replica, partial(open_model, device=number), artifact, max_queue
            )
            for number in devices
        }
    failed = {name: error for name, made in opening.items() if (error := made.exception())}
    if not failed:
        return {name: made.result() for name, made in opening.items()}
    for name, made in opening.items():
        if name not in failed:
            made.result().close()
    name, error = next(iter(failed.items()))
    if isinstance(error, DeviceError):
        raise DeviceError(f"--device {name}: {error.message}") from None
    raise error


def _by_capacity(capacity: Capacity) -> tuple[int, int]:
    """Order of capacities: what a request may need, whichever engine gets it."""
    return capacity.context, sum(capacity.pools)
