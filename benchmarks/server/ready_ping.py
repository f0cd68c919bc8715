"""Asks a server's `/ready` every 10 ms on one connection, as a process of its own.

    python -m benchmarks.server.ready_ping URL [--no-verify]

A long time shows that the server's event loop stalled, or that it had no core. Prints a JSON line,
percentiles of the times in milliseconds, once its input is closed.
"""

from __future__ import annotations

import argparse
import http.client
import json
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

INTERVAL_S = 0.01
SHARES = (0.5, 0.99, 0.999, 1.0)


def connection(url: str, verify: bool) -> http.client.HTTPConnection:
    """A connection to the server. verify: whether its certificate is checked."""
    host = urlsplit(url).netloc
    if not url.startswith("https"):
        return http.client.HTTPConnection(host, timeout=60)
    context = ssl.create_default_context() if verify else ssl._create_unverified_context()
    return http.client.HTTPSConnection(host, timeout=60, context=context)


def measure(url: str, verify: bool, done: threading.Event) -> list[float]:
    """The times of all answers until `done`, in milliseconds."""
    milliseconds: list[float] = []
    client = connection(url, verify)
    while not done.is_set():
        start = time.perf_counter()
        client.request("GET", "/ready")
        client.getresponse().read()
        milliseconds.append(1000 * (time.perf_counter() - start))
        time.sleep(INTERVAL_S)
    return milliseconds


def percentiles(milliseconds: list[float]) -> dict[str, float]:
    """Share of the answers -> the time within which they came."""
    times = sorted(milliseconds)
    last = len(times) - 1
    return {str(share): round(times[min(last, int(share * len(times)))], 1) for share in SHARES}


@contextmanager
def pinging(url: str, verify: bool = True) -> Iterator[dict[str, float]]:
    """Ask while the block runs. The dictionary has the percentiles once it is left."""
    command = [sys.executable, "-m", __name__, url, *(() if verify else ("--no-verify",))]
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)
    found: dict[str, float] = {}
    try:
        yield found
    finally:
        answer, _ = process.communicate()
        found.update(json.loads(answer or "{}"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("--no-verify", action="store_true")
    given = parser.parse_args()
    done = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), done.set()), daemon=True).start()
    print(json.dumps(percentiles(measure(given.url, not given.no_verify, done))))


if __name__ == "__main__":
    main()
