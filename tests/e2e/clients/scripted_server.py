"""`mlcc serve` with the scripted model, as a program for clients and agents."""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
from functools import partial
from pathlib import Path

from tests.e2e.clients.scripted import open_scripted, scripted_text

NAME = "scripted"


def main() -> None:
    # Here: the processes that a server starts import its main module, too.
    from mlcc.server.asgi import Settings
    from mlcc.server.serve import HttpOptions, serve

    parser = argparse.ArgumentParser()
    parser.add_argument("--api-key", dest="api_keys", action="append", default=[])
    parser.add_argument("--store", type=Path)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        text = partial(scripted_text, folder, NAME)
        text()  # writes the tokenizer, which three processes read
        say = partial(print, flush=True)
        keys = tuple(args.api_keys)
        settings = Settings(keys, max_body_bytes=8 << 20, timeout_s=300, store=args.store)
        opener = partial(open_scripted, folder, NAME)
        http = HttpOptions("127.0.0.1", 0)
        serve(opener, text, settings, http, lambda url, _: say(url), say)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:  # as the command line does
        sys.exit(128 + signal.SIGINT)
