"""The exact toy executor as a whole model: tokens are letters, answers are gibberish.

Each answer depends on every token before, so that mixed-up sequences are detected. Steps can be
slow, the device can run out of memory, or the process can die, at a given step.
"""

from __future__ import annotations

import gc
import os
import time
from array import array
from collections.abc import Sequence
from pathlib import Path

from mlcc.api.chat_template.template import ChatTemplate
from mlcc.api.openai.models import ModelInfo
from mlcc.api.openai.requests import default_sampling
from mlcc.device.toy.executor import ToyExecutor
from mlcc.engine.batch.adjustments import Adjustments
from mlcc.engine.batch.batch import Batch, Capacity
from mlcc.engine.batch.tables import CacheGroup
from mlcc.engine.migration import Identity
from mlcc.errors import DeviceError, OutOfMemoryError
from mlcc.model.model import Model, ModelText

VOCAB = 96
CAPACITY = Capacity.of(
    [CacheGroup("paged", 16)],
    [256],
    vocab_size=VOCAB,
    context=512,
    max_batch=4,
    max_step_tokens=64,
)
TEMPLATE = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}<assistant>"


class Letters:
    """One token per printable ASCII character; 0 is the end token."""

    longest = 8  # so that little too much is refused by its count, as by real ones

    def encode(self, text: str, /, *, add_special_tokens: bool) -> array[int]:
        return array("i", [ord(c) - 31 if " " <= c < "\x7f" else 1 for c in text])

    def decode(self, ids: Sequence[int], /) -> str:
        return "".join(chr(i + 31) for i in ids if i)

    def special_tokens(self) -> tuple[str, ...]:
        return ()


class SlowToy(ToyExecutor):
    """`die_after` and `full_at` are numbers of steps, from 1; 0 = never. Every step of a request
    with `fail_top_k` fails."""

    def __init__(
        self,
        capacity: Capacity,
        delay: float = 0.0,
        die_after: float = 0,
        full_at: float = 0,
        fail_top_k: float = -1,
    ) -> None:
        super().__init__(capacity)
        self._delay, self._die_after, self._full_at = delay, die_after, full_at
        self._fail_top_k, self._step = fail_top_k, 0

    def submit(self, batch: Batch, adjustments: Adjustments | None = None) -> int:
        time.sleep(self._delay)
        self._step += 1
        if self._step == self._die_after:
            os._exit(7)
        failing = self._fail_top_k in batch.column(batch.layout.rows, "top_k")
        if self._step == self._full_at or failing:
            raise OutOfMemoryError("the GPU's memory is full")
        return super().submit(batch, adjustments)


def toy_text() -> ModelText:
    about = ModelInfo(sampling=default_sampling({}))
    return ModelText("toy", Letters(), ChatTemplate(TEMPLATE), frozenset([0]), info=about)


def open_watched_toy(place: str, *options: float) -> Model:
    """Writes its process's id into the folder; does not open while the folder has a `shut`."""
    folder = Path(place)
    if (folder / "shut").exists():
        raise DeviceError(f"{folder} is shut")
    (folder / "new").write_text(str(os.getpid()))
    (folder / "new").replace(folder / "pid")
    return open_toy(*options)


def open_toy(
    delay: float = 0.0, die_after: float = 0, full_at: float = 0, fail_top_k: float = -1
) -> Model:
    return Model(toy_text(), SlowToy(CAPACITY, delay, die_after, full_at, fail_top_k))


def open_toy_after_collecting() -> Model:
    """For measurements of memory: what no object refers to any more is freed first."""
    gc.collect()
    return open_toy()


def open_moving_toy(delay: float = 0.0) -> Model:
    """A toy model that can export and import requests."""
    identity = Identity("toy", "toy", "toy")
    return Model(toy_text(), SlowToy(CAPACITY, delay), identity=identity)


def open_slow_toy() -> Model:
    """A toy model that takes about a second for a hundred tokens."""
    return open_toy(delay=0.01)


def open_full_toy() -> Model:
    """A toy model that runs out of device memory once."""
    return open_toy(full_at=3)
