"""A server over the toy model, as a program for the tests."""

from __future__ import annotations

import argparse
import signal
import sys
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

from mlcc.model.model import ModelText
from mlcc.worker.worker import OpenModel
from tests.helpers.toy.toy_model import open_toy, open_watched_toy, toy_text


def named_text(name: str) -> ModelText:
    return replace(toy_text(), name=name)


def main() -> None:
    # Here: the processes that a server starts import its main module, too.
    from mlcc.server.asgi import Settings
    from mlcc.server.auth.allowed_hosts import allowed_hosts
    from mlcc.server.http.connection import ConnectionLimits
    from mlcc.server.http.tls import Tls
    from mlcc.server.observability.logs import configure
    from mlcc.server.serve import HttpOptions, serve
    from mlcc.server.web import no_web_routes, page_routes

    parser = argparse.ArgumentParser()
    parser.add_argument("--delay", type=float, default=0.0)
    parser.add_argument("--die-after", type=int, default=0)
    parser.add_argument("--full-at", type=int, default=0)
    parser.add_argument("--fail-top-k", type=int, default=-1)
    parser.add_argument("--api-key", dest="api_keys", action="append", default=[])
    parser.add_argument("--max-queue", type=int, default=64)
    parser.add_argument("--timeout", type=float, default=60)
    parser.add_argument("--max-body", type=int, default=100_000)
    parser.add_argument("--bodies", type=int, default=16)
    parser.add_argument("--body-s", type=float, default=60)
    parser.add_argument("--body-window-s", type=float, default=10)
    parser.add_argument("--name", default="toy")
    parser.add_argument("--hosts", nargs="*")
    parser.add_argument("--strict-fields", action="store_true")
    parser.add_argument("--store", type=Path)
    parser.add_argument("--files", type=Path)
    parser.add_argument("--max-file", type=int, default=1_000_000)
    for name, default in asdict(ConnectionLimits()).items():
        parser.add_argument("--" + name.replace("_", "-"), type=type(default), default=default)
    parser.add_argument("--api-keys", dest="key_file", type=Path)
    parser.add_argument("--cors-origin", dest="cors", action="append", default=[])
    parser.add_argument("--root-path", default="")
    parser.add_argument("--ping-s", type=float, default=15)
    parser.add_argument("--drain", type=float, default=60)
    parser.add_argument("--otel", action="store_true")
    parser.add_argument("--log-level", default="")
    parser.add_argument("--log-json", action="store_true")
    parser.add_argument("--cert", nargs=2, type=Path)
    parser.add_argument("--watched", metavar="FOLDER")
    parser.add_argument("--grpc-port", type=int)
    parser.add_argument("--web", nargs=2, type=Path, metavar=("PAGE", "MODEL"))
    args = parser.parse_args()
    settings = Settings(
        api_keys=tuple(args.api_keys),
        max_queue=args.max_queue,
        max_body_bytes=args.max_body,
        timeout_s=args.timeout,
        body_s=args.body_s,
        body_window_s=args.body_window_s,
        bodies=args.bodies,
        hosts=None if args.hosts is None else allowed_hosts("127.0.0.1", False, args.hosts),
        strict_fields=args.strict_fields,
        store=args.store,
        files=args.files,
        max_file_bytes=args.max_file,
        api_key_file=args.key_file,
        cors_origins=tuple(args.cors),
        root_path=args.root_path,
        ping_s=args.ping_s,
        drain_s=args.drain,
        traces=args.otel,
    )
    if args.log_level:
        configure(args.log_level, args.log_json)
    opener: OpenModel = partial(open_toy, args.delay, args.die_after, args.full_at, args.fail_top_k)
    if args.watched:
        opener = partial(open_watched_toy, args.watched, args.delay, args.die_after, args.full_at)
    say = partial(print, flush=True)
    more = page_routes(*args.web) if args.web else no_web_routes()
    limits = ConnectionLimits(args.connections, args.head_s, args.write_s)
    open_text = partial(named_text, args.name)
    tls = Tls(*args.cert) if args.cert else None
    when_ready = lambda url, _: say(url)  # noqa: E731
    http = HttpOptions("127.0.0.1", 0, more, limits, tls, args.grpc_port)
    note = say if args.grpc_port is None else partial(say, file=sys.stderr)
    serve(opener, open_text, settings, http, when_ready, note)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:  # as the command line does
        sys.exit(128 + signal.SIGINT)
