"""A server over the exact toy executor, as a program: what the tests talk to.

The toy's tokens are printable characters, so its answers are gibberish that depends on every token
before. `--delay` makes each step slow, `--die-after` kills the engine at that step.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Sequence
from functools import partial

from mlcc.api.template import ChatTemplate
from mlcc.device.toy import ToyExecutor
from mlcc.engine.batch import Batch, Capacity
from mlcc.model import Model, ModelText
from mlcc.server.routes import Settings
from mlcc.server.serve import serve

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


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--delay", type=float, default=0.0)
    parser.add_argument("--die-after", type=int, default=0)
    parser.add_argument("--api-key")
    parser.add_argument("--max-queue", type=int, default=64)
    parser.add_argument("--timeout", type=float, default=60)
    args = parser.parse_args()
    settings = Settings(
        api_key=args.api_key,
        max_queue=args.max_queue,
        max_body_bytes=100_000,
        timeout_s=args.timeout,
    )
    opener = partial(open_toy, args.delay, args.die_after)
    serve(opener, toy_text(), settings, "127.0.0.1", 0, lambda url: print(url, flush=True))


if __name__ == "__main__":
    main()
