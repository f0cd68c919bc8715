"""A server under load: mlcc with and without its prefix cache, and llama-server if one is given.

    python benchmarks/serve.py ARTIFACT [--workloads short mixed] [--streams 8] [--rate 4]
        [--llama-server PATH --gguf MODEL-Q4_0.gguf] [--requests 40] [--rounds 3]

Each server runs alone, in turn, round after round, in a process of its own; each workload is sent
by as many clients as `--streams` says (closed loop), or with `--rate` by a Poisson process (open
loop), the same to all and another one in each round. Prints a table and one JSON line: percentiles,
in milliseconds, of the time to the first token, of the time per output token (an answer's mean) and
of gaps between pieces; and output tokens a second of all. `structured` is no workload yet.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from serve_load import WORKLOADS, Seen, Words, closed_loop, open_loop

SHARES = (50, 95, 99)
START_S = 300.0
Command = Callable[[int], Sequence[str]]
"""A server's command line, by its port."""


@contextmanager
def serving(command: Command) -> Iterator[str]:
    """A server that answers, and its URL."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    quiet = subprocess.DEVNULL
    process = subprocess.Popen(list(command(port)), stdout=quiet, stderr=quiet)
    try:
        end = time.monotonic() + START_S
        while not _answers(url):
            if process.poll() is not None or time.monotonic() > end:
                raise SystemExit(f"it does not serve: {' '.join(command(port))}")
            time.sleep(0.1)
        yield url
    finally:
        process.terminate()
        process.wait()


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=5) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def percentiles(values: Sequence[float]) -> dict[str, float]:
    """In milliseconds, by nearest rank; empty without values."""
    ordered = sorted(values)
    last = len(ordered) - 1
    return {f"p{s}": round(1e3 * ordered[round(last * s / 100)], 2) for s in SHARES if ordered}


def summary(found: Sequence[Seen], seconds: float) -> dict[str, Any]:
    """Figures of one workload."""
    good = [seen for seen in found if not seen.error and seen.pieces]
    per_token = [(s.pieces[-1] - s.pieces[0]) / (s.tokens - 1) for s in good if s.tokens > 1]
    return {
        "requests": len(found),
        "errors": sorted({seen.error for seen in found if seen.error}),
        "cached_tokens": sum(seen.cached for seen in good),
        "ttft_ms": percentiles([seen.pieces[0] for seen in good]),
        "per_token_ms": percentiles(per_token),
        "gap_ms": percentiles([gap for seen in good for gap in seen.gaps]),
        "output_tokens_per_s": round(sum(seen.tokens for seen in good) / seconds, 1),
        "load": round(os.getloadavg()[0], 1),
    }


def measure(url: str, name: str, given: argparse.Namespace, seed: int) -> dict[str, Any]:
    """One workload at one server."""
    wishes = WORKLOADS[name](Words(seed, given.vocab), given.requests)
    start = time.perf_counter()
    if given.rate:
        found = asyncio.run(open_loop(url, wishes, given.rate, seed))
    else:
        found = asyncio.run(closed_loop(url, wishes, given.streams))
    return summary(found, time.perf_counter() - start)


def engines(given: argparse.Namespace) -> dict[str, Command]:
    """All servers, by name."""
    threads, streams = str(given.threads), str(max(given.streams, 8))
    serve = [sys.executable, "-m", "mlcc", "serve", str(given.artifact), "--threads", threads]
    serve += ["--max-queue", "10000"]
    found: dict[str, Command] = {
        "mlcc": lambda port: [*serve, "--port", str(port)],
        "mlcc, no prefix cache": lambda port: [*serve, "--no-prefix-cache", "--port", str(port)],
    }
    if given.llama_server:
        # It divides --ctx-size among its slots.
        llama = [str(given.llama_server), "-m", str(given.gguf), "-t", threads, "-np", streams]
        llama += ["-c", str(8192 * int(streams)), "--no-webui"]
        found["llama-server"] = lambda port: [*llama, "--port", str(port)]
    return found


def table(rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    yield (
        f"{'workload':15}{'engine':24}{'TTFT p50/p95/p99 ms':>24}{'per token':>22}{'gap':>22}"
        f"{'tok/s':>9}{'load':>6}"
    )
    for row in rows:
        keys = ("ttft_ms", 24), ("per_token_ms", 22), ("gap_ms", 22)
        cells = (f"{'/'.join(f'{v:.4g}' for v in row[key].values()):>{n}}" for key, n in keys)
        speeds = f"{row['output_tokens_per_s']:>9.1f}{row['load']:>6.1f}"
        yield f"{row['workload']:15}{row['engine']:24}{''.join(cells)}{speeds}"
        for error in row["errors"]:
            yield f"    {error}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("artifact", type=Path)
    parser.add_argument("--workloads", nargs="*", choices=[*WORKLOADS], default=[*WORKLOADS])
    parser.add_argument("--streams", type=int, default=8)
    parser.add_argument("--rate", type=float, help="requests a second: an open loop")
    parser.add_argument("--requests", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--llama-server", type=Path)
    parser.add_argument("--gguf", type=Path)
    given = parser.parse_args()
    manifest = json.loads((given.artifact / "mlcc.json").read_text())
    given.vocab = manifest["model"]["vocab_size"]
    rows = []
    for number in range(given.rounds):
        for engine, command in engines(given).items():
            with serving(command) as url:
                for name in given.workloads:
                    # Other prompts in each round, and for each workload: no cache has them.
                    found = measure(url, name, given, given.seed + 1000 * number + len(name))
                    rows.append({"round": number, "workload": name, "engine": engine, **found})
    rows.sort(key=lambda row: (row["workload"], row["engine"], row["round"]))
    print("\n".join(table(rows)))
    print(json.dumps({"streams": given.streams, "rate": given.rate, "rows": rows}))


if __name__ == "__main__":
    main()
