"""An engine in this event loop, as an `EngineClient`. The bookkeeping of requests is in
`mlcc.service.engine_client`."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import asdict
from time import perf_counter
from typing import Any

from mlcc.api.errors import EngineDiedError
from mlcc.artifact.schema import AdaptersInfo
from mlcc.embedded.driver import BaseDriver, LoopDriver, LoopEncoderDriver
from mlcc.embedded.executor import JsExecutor
from mlcc.embedded.tower import TabTowers
from mlcc.engine.batch.batch import Capacity
from mlcc.engine.encoder_engine import EncoderEngine
from mlcc.engine.engine import Engine
from mlcc.engine.lora import no_adapters
from mlcc.engine.request import Request
from mlcc.engine.sampling.grammar import Grammar, Grammars
from mlcc.errors import DeviceError, DeviceLostError, MlccError
from mlcc.lora.loader import AdapterLoader
from mlcc.service.adapters import AdapterEntry
from mlcc.service.engine_client import EngineClient

TAB_MEMORY = 1 << 30
"""Assumed memory of Python in a tab, in bytes; copies of LoRA adapters get a share of it. The real
limit (2 or 4 GiB) cannot be queried."""


class LoopClient(EngineClient):
    """One per tab. Needs a running event loop."""

    def __init__(
        self,
        engine: Engine | EncoderEngine,
        executor: JsExecutor,
        max_queue: int,
        grammars: Grammars | None = None,
        adapters: AdaptersInfo | None = None,
        towers: TabTowers | None = None,
    ) -> None:
        """`adapters`: the LoRA slots that the model was compiled with. `towers`: its own;
        None = it reads text only."""
        super().__init__(max_queue + engine.capacity.max_batch)
        self._engine, self._grammars = engine, grammars
        engine.times.clock = perf_counter
        self._entries: dict[str, AdapterEntry] = {}
        self._adapters: AdapterLoader | None = None
        """None = an encoder, which has no LoRA slots."""
        self._driver: BaseDriver
        if isinstance(engine, EncoderEngine):
            self._driver = LoopEncoderDriver(engine, executor, self._deliver)
        else:
            self._adapters = AdapterLoader(engine, executor, adapters, lambda: TAB_MEMORY)
            self._driver = LoopDriver(engine, executor, self._adapters, self._deliver, towers)
        self._running = asyncio.get_running_loop().create_task(self._run())

    @property
    def capacity(self) -> Capacity:
        return self._engine.capacity

    @property
    def adapters(self) -> Mapping[str, AdapterEntry]:
        return self._entries

    async def load_adapter(self, entry: AdapterEntry, in_place: bool = False) -> None:
        """Load an adapter between two steps; blocks the event loop while it is read."""
        self.check_alive()
        if self._adapters is None:
            raise no_adapters()
        self._adapters.load(entry.name, entry.folder, in_place)
        self._entries[entry.name] = entry

    async def unload_adapter(self, name: str) -> None:
        self.check_alive()
        if self._entries.pop(name, None) is None or self._adapters is None:
            await super().unload_adapter(name)
        else:
            self._adapters.unload(name)

    def stats(self) -> dict[str, Any]:
        """Return the counters of the engine and the driver."""
        driver = self._driver.counters
        return {
            "engine": asdict(self._engine.stats()),
            "driver": {**asdict(driver), "python_ms": driver.python_ms},
        }

    async def counters(self) -> dict[str, Any]:
        """Return `stats`. Raises if the engine is dead."""
        if self.dead:
            raise self.dead.with_traceback(None)
        return self.stats()

    def close(self) -> None:
        """Fail all waiting requests. Idempotent; the owner closes the device."""
        self._running.cancel()
        self._die(
            EngineDiedError(
                "the model was unloaded, and the answer is lost; create the engine again",
                code="engine_closed",
            )
        )

    def _add(self, request: Request) -> None:
        try:
            self._engine.add(request, self._grammar(request))
        except MlccError as error:
            self._refuse(request.id, error)
        else:
            self._accept(request.id)
            self._driver.wake()

    def _grammar(self, request: Request) -> Grammar | None:
        """Return the grammar of a request. It was compiled when the request was checked, and is
        cached."""
        if request.structure is None or self._grammars is None:
            return None
        return self._grammars.open(request.structure)

    def _cancel(self, request_id: str) -> None:
        self._engine.cancel(request_id)

    async def _run(self) -> None:
        """Run until the device is lost. Any other device error only fails the running requests."""
        while self.dead is None:
            try:
                await self._driver.run()
            except DeviceLostError as error:
                self._die(error)
            except MlccError as error:
                self._fail(error)
                await self._driver.recover()
            except Exception as error:
                self._die(_bug(error))


def _bug(error: Exception) -> DeviceError:
    import traceback

    traceback.print_exception(error)
    text = f"the engine failed ({type(error).__name__}: {error}); this is a bug, see the log"
    return DeviceError(text, code="engine_failed")
