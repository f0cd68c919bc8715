"""The exact toy executor as a whole model: tokens are letters, answers are gibberish.

Each answer depends on every token before, so that nothing can be mixed up unseen. Steps can be made
slow, and the process can be made to die at a given step.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence

from mlcc.api.template import ChatTemplate
from mlcc.device.toy import ToyExecutor
from mlcc.engine.batch import Batch, Capacity
from mlcc.model import Model, ModelText

VOCAB = 96
CAPACITY = Capacity(
    vocab_size=VOCAB, context=512, page_size=16, num_pages=256, max_batch=4, max_step_tokens=64
)
TEMPLATE = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}<assistant>"


class Letters:
    """One token per printable ASCII character; 0 is the end token."""

    def encode(self, text: str, /, *, add_special_tokens: bool) -> list[int]:
        return [ord(c) - 31 if " " <= c < "\x7f" else 1 for c in text]

    def decode(self, ids: Sequence[int], /) -> str:
        return "".join(chr(i + 31) for i in ids if i)

    def special_tokens(self) -> tuple[str, ...]:
        return ()


class SlowToy(ToyExecutor):
    def __init__(self, capacity: Capacity, delay: float, die_after: int) -> None:
        super().__init__(capacity)
        self._delay, self._steps_left = delay, die_after

    def submit(self, batch: Batch) -> int:
        time.sleep(self._delay)
        self._steps_left -= 1
        if self._steps_left == 0:
            os._exit(7)
        return super().submit(batch)


def toy_text() -> ModelText:
    return ModelText("toy", Letters(), ChatTemplate(TEMPLATE), frozenset([0]))


def open_toy(delay: float = 0.0, die_after: int = 0) -> Model:
    return Model(toy_text(), SlowToy(CAPACITY, delay, die_after))
