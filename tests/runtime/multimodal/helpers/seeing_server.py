"""A server over the seeing toy, as a program: the real HTTP server, prompt processes and engine."""

from __future__ import annotations

import sys
from functools import partial

from mlcc.limits import body_bytes
from mlcc.model.model import Model
from tests.helpers.toy.toy_model import SlowToy
from tests.runtime.multimodal.helpers.pictures import idefics3
from tests.runtime.multimodal.helpers.seeing_toy import CAPACITY, seeing_model, text_of

INFO = idefics3()
open_text = partial(text_of, INFO)


def open_model(delay: float) -> Model:
    return seeing_model(open_text(), SlowToy(CAPACITY, delay))


def main() -> None:
    # Here: the processes that a server starts import its main module, too.
    from mlcc.server.asgi import Settings
    from mlcc.server.serve import HttpOptions, serve

    delay = float(sys.argv[1]) if len(sys.argv) > 1 else 0.01
    settings = Settings(max_body_bytes=body_bytes(True), timeout_s=600, max_queue=1000)
    say = partial(print, flush=True)
    ready = lambda url, _: say(url)  # noqa: E731
    serve(partial(open_model, delay), open_text, settings, HttpOptions("127.0.0.1", 0), ready, say)


if __name__ == "__main__":
    main()
