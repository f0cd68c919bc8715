"""The engine loop of encoders, which return a row of numbers per text instead of tokens.

Synchronous and single-threaded: a step is computed and read before the next one is planned.
"""

from __future__ import annotations

from pathlib import Path
from time import perf_counter

from mlcc.engine.batch.executor import EncoderExecutor
from mlcc.engine.encoder_engine import EncoderEngine
from mlcc.engine.events import Event
from mlcc.engine.lora import no_adapters
from mlcc.errors import UnsupportedError
from mlcc.model.driver import Driver
from mlcc.model.model import Model


def driver_of(model: Model, defer_text: bool = False) -> Driver | EncoderDriver:
    """The driver for a generative model or an encoder; defer_text: as in `Driver`."""
    return Driver(model, defer_text) if model.encoder is None else EncoderDriver(model)


class EncoderDriver:
    """Runs an `EncoderEngine`. A failed step ends all texts without events.

    Raises UnsupportedError for an executor that cannot return rows.
    """

    def __init__(self, model: Model) -> None:
        executor = model.executor
        if not isinstance(executor, EncoderExecutor):
            raise UnsupportedError(
                f"'{model.text.name}' is an encoder, and this device gives no rows yet; compile it "
                "for cpu or vulkan and use `mlcc serve`"
            )
        self.engine: EncoderEngine = model.new_encoder()
        self.engine.times.clock = perf_counter
        self._executor = executor

    @property
    def has_work(self) -> bool:
        """Whether `step` has something to do."""
        return self.engine.has_work

    def load_adapter(self, name: str, folder: Path, in_place: bool = False) -> None:
        """Raises UnsupportedError: encoders take no adapters."""
        raise no_adapters()

    def unload_adapter(self, name: str) -> None:
        """Raises UnsupportedError: encoders take no adapters."""
        raise no_adapters()

    def step(self) -> list[Event]:
        """Compute the next step. Raises what the executor raises, after dropping all texts."""
        try:
            batch = self.engine.plan(self._executor.step_buffer())
            if batch is None:
                return []
            return self.engine.commit(self._executor.vectors(batch, self.engine.width))
        except BaseException:
            self.forget()
            raise

    def forget(self) -> None:
        """Drop all texts, so that the device can be used again if it recovers."""
        self.engine.fail()
