"""A server over the toy model, as a program: what the tests talk to."""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path

from toy_model import open_toy, toy_text

from mlcc.server.adapter import Settings
from mlcc.server.serve import serve
from mlcc.server.web import no_web_routes, web_routes


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--delay", type=float, default=0.0)
    parser.add_argument("--die-after", type=int, default=0)
    parser.add_argument("--full-at", type=int, default=0)
    parser.add_argument("--api-key")
    parser.add_argument("--max-queue", type=int, default=64)
    parser.add_argument("--timeout", type=float, default=60)
    parser.add_argument("--web", nargs=2, type=Path, metavar=("PAGE", "MODEL"))
    args = parser.parse_args()
    settings = Settings(
        api_key=args.api_key,
        max_queue=args.max_queue,
        max_body_bytes=100_000,
        timeout_s=args.timeout,
    )
    opener = partial(open_toy, args.delay, args.die_after, args.full_at)
    say = partial(print, flush=True)
    more = web_routes(*args.web) if args.web else no_web_routes()
    serve(opener, toy_text(), settings, "127.0.0.1", 0, say, say, more)


if __name__ == "__main__":
    main()
