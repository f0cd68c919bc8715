"""A server under load: mlcc with its prefix cache and without, and llama-server if given.

    python -m benchmarks.server.serve ARTIFACT [--workloads short mixed] [--streams 8 16] [--rate 4]
        [--llama-server PATH --gguf MODEL-Q4_0.gguf] [--requests 40] [--rounds 3] [--quick]
        [--also "mlcc --speculate lookup" "llama-server -ctk q8_0 -ctv q8_0"]

Each server runs alone, in turn, round after round, in a process of its own. A workload is sent by
`--streams` clients (closed loop), or with `--rate` by a Poisson process (open loop); every server
gets the same requests, other ones in each round. `--quick` is one round with every workload at 8
streams, some at 16, one as an open loop, and without the prefix cache only where prompts share
prefixes. `--also` adds servers with other options, and after `mlcc=` with another artifact. Prints
a table, ratios to the other servers, and one JSON line: percentiles in milliseconds of the time to
first token (TTFT), of the time per output token (an answer's mean) and of gaps between chunks; and
output tokens a second of all streams.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import socket
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.server.load_generator import (
    WORKLOADS,
    RandomTokens,
    RequestMetrics,
    closed_loop,
    open_loop,
)

MLCC, NO_PREFIX_CACHE, LLAMA = "mlcc", "mlcc, no prefix cache", "llama-server"

SHARES = (50, 95, 99)
START_S = 300.0
CONTEXT = 8192
Command = Callable[[int], Sequence[str]]
"""A server's command line, by its port."""


@contextmanager
def serving(
    command: Command,
    on_start: Callable[[subprocess.Popen[bytes]], object] = lambda process: None,
    context: ssl.SSLContext | None = None,
) -> Iterator[str]:
    """Start a server and yield its URL once it answers. `on_start` receives its process; context:
    of a client, if the server speaks TLS."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = f"{'https' if context else 'http'}://127.0.0.1:{port}"
    quiet = subprocess.DEVNULL
    process = subprocess.Popen(list(command(port)), stdout=quiet, stderr=quiet)
    try:
        on_start(process)
        end = time.monotonic() + START_S
        while not _answers(url, context):
            if process.poll() is not None or time.monotonic() > end:
                raise SystemExit(f"the server does not start: {' '.join(command(port))}")
            time.sleep(0.1)
        yield url
    finally:
        process.terminate()
        process.wait()


def _answers(url: str, context: ssl.SSLContext | None = None) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=5, context=context) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def percentiles(values: Sequence[float]) -> dict[str, float]:
    """In milliseconds, by nearest rank; empty without values."""
    ordered = sorted(values)
    last = len(ordered) - 1
    return {f"p{s}": round(1e3 * ordered[round(last * s / 100)], 2) for s in SHARES if ordered}


def summary(results: Sequence[RequestMetrics], seconds: float) -> dict[str, Any]:
    """Figures of one workload."""
    good = [result for result in results if not result.error and result.chunk_times]
    per_token = [
        (s.chunk_times[-1] - s.chunk_times[0]) / (s.tokens - 1) for s in good if s.tokens > 1
    ]
    return {
        "requests": len(results),
        "errors": sorted({result.error for result in results if result.error}),
        "cached_tokens": sum(result.cached_tokens for result in good),
        "ttft_ms": percentiles([result.chunk_times[0] for result in good]),
        "per_token_ms": percentiles(per_token),
        "gap_ms": percentiles([gap for result in good for gap in result.gaps]),
        "output_tokens_per_s": round(sum(result.tokens for result in good) / seconds, 1),
        "load": round(os.getloadavg()[0], 1),
    }


@dataclass(frozen=True)
class Case:
    """One workload and its arrival process."""

    workload: str
    streams: int
    """Clients of a closed loop."""
    rate: float | None
    """Requests a second of an open loop; None = closed."""
    requests: int

    @property
    def loop(self) -> str:
        return f"{self.rate:g}/s" if self.rate else f"{self.streams} streams"


QUICK = (
    Case("short", 8, None, 32),
    Case("short", 16, None, 48),
    Case("shared-prefix", 8, None, 16),
    Case("multi-turn", 8, None, 32),
    Case("long-prompts", 4, None, 10),
    Case("mixed", 8, None, 24),
    Case("mixed", 8, 1.0, 24),
    Case("copy-heavy", 8, None, 24),
    Case("structured", 8, None, 32),
    Case("structured", 16, None, 48),
)
SHARED_PREFIX = ("shared-prefix", "multi-turn")
"""Workloads whose prompts share prefixes."""


def cases(given: argparse.Namespace) -> list[Case]:
    """The cases of a round."""
    if given.quick:
        return [case for case in QUICK if case.workload in given.workloads]
    streams = given.streams[:1] if given.rate else given.streams
    return [
        Case(name, count, given.rate, given.requests)
        for name in given.workloads
        for count in streams
    ]


def measure(url: str, case: Case, vocab: int, seed: int) -> dict[str, Any]:
    """Results of one workload on one server."""
    requests = WORKLOADS[case.workload](RandomTokens(seed, vocab), case.requests)
    start = time.perf_counter()
    if case.rate:
        results = asyncio.run(open_loop(url, requests, case.rate, seed))
    else:
        results = asyncio.run(closed_loop(url, requests, case.streams))
    return summary(results, time.perf_counter() - start)


def servers(given: argparse.Namespace, streams: int) -> dict[str, Command]:
    """The command lines of all servers, for at most `streams` clients."""
    threads = str(given.threads)
    serve = [sys.executable, "-m", "mlcc", "serve", str(given.artifact), "--threads", threads]
    serve += ["--max-queue", "10000", "--max-batch", str(streams)]
    commands: dict[str, Command] = {
        MLCC: lambda port: [*serve, "--port", str(port)],
        NO_PREFIX_CACHE: lambda port: [*serve, "--no-prefix-cache", "--port", str(port)],
    }
    if given.llama_server:
        # llama-server divides --ctx-size among its slots.
        llama = [*given.llama_server.split(), "-m", str(given.gguf), "-t", threads]
        llama += ["-np", str(streams), "-c", str(CONTEXT * streams), "--no-webui"]
        commands[LLAMA] = lambda port: [*llama, "--port", str(port)]
    for text in given.also:
        commands[text] = _with(commands, serve, *text.split())
    return commands


def _with(commands: dict[str, Command], serve: Sequence[str], name: str, *options: str) -> Command:
    """A server with more options; `mlcc=FOLDER` serves another artifact."""
    name, _, folder = name.partition("=")
    if name not in (MLCC, LLAMA) or name not in commands:
        raise SystemExit(f"--also {name}: 'mlcc', or 'llama-server' where --llama-server is given")
    if folder:
        other = [folder if part == serve[4] else part for part in serve]
        return lambda port: [*other, *options, "--port", str(port)]
    return lambda port: [*commands[name](port), *options]


def comparison(rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Ratios of mlcc to the other servers, of medians over rounds."""
    cases: dict[tuple[str, str], dict[str, list[dict[str, Any]]]] = {}
    for row in rows:
        case = cases.setdefault((row["workload"], row["loop"]), {})
        case.setdefault(row["engine"], []).append(row)
    for (workload, loop), engines in cases.items():
        for other in engines:
            if MLCC in engines and other != MLCC:
                speed, ttft = (
                    [median(value(row) for row in engines[name]) for name in (MLCC, other)]
                    for value in (_speed, _ttft)
                )
                yield (
                    f"{workload}, {loop}: {speed[0] / max(speed[1], 1e-9):.2f} times the output of "
                    f"{other}; first token after {ttft[0] / max(ttft[1], 1e-9):.2f} of its time"
                )


def _speed(row: dict[str, Any]) -> float:
    return float(row["output_tokens_per_s"])


def _ttft(row: dict[str, Any]) -> float:
    return float(row["ttft_ms"].get("p50", 0.0))


def table(rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    yield (
        f"{'workload':15}{'loop':>11} {'engine':24}{'TTFT p50/p95/p99 ms':>24}{'per token':>22}"
        f"{'gap':>22}{'tok/s':>9}{'load':>6}"
    )
    for row in rows:
        keys = ("ttft_ms", 24), ("per_token_ms", 22), ("gap_ms", 22)
        cells = (f"{'/'.join(f'{v:.4g}' for v in row[key].values()):>{n}}" for key, n in keys)
        speeds = f"{row['output_tokens_per_s']:>9.1f}{row['load']:>6.1f}"
        yield f"{row['workload']:15}{row['loop']:>11} {row['engine']:24}{''.join(cells)}{speeds}"
        for error in row["errors"]:
            yield f"    {error}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("artifact", type=Path)
    parser.add_argument("--workloads", nargs="*", choices=[*WORKLOADS], default=[*WORKLOADS])
    parser.add_argument("--streams", type=int, nargs="*", default=[8])
    parser.add_argument("--rate", type=float, help="requests a second: an open loop")
    parser.add_argument("--requests", type=int, default=40)
    parser.add_argument("--rounds", type=int, help="default: 3, or 1 with --quick")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--llama-server", help="its command")
    parser.add_argument("--gguf", type=Path)
    parser.add_argument("--also", nargs="*", default=[], help="'mlcc OPTIONS' and the like")
    given = parser.parse_args()
    manifest = json.loads((given.artifact / "mlcc.json").read_text())
    vocab, chosen, rows = manifest["model"]["vocab_size"], cases(given), []
    for number in range(given.rounds or (1 if given.quick else 3)):
        for engine, command in servers(given, max(case.streams for case in chosen)).items():
            todo = [
                x
                for x in chosen
                if engine != NO_PREFIX_CACHE or not given.quick or x.workload in SHARED_PREFIX
            ]
            with serving(command) as url:
                for case in todo:
                    # Other prompts in each round and case, so that no cache has them.
                    seed = given.seed + 1000 * number + 100 * chosen.index(case)
                    result = measure(url, case, vocab, seed)
                    labels = {"workload": case.workload, "loop": case.loop, "engine": engine}
                    rows.append({"round": number, **labels, **result})
                    print(*table(rows[-1:]), sep="\n", file=sys.stderr, flush=True)
    rows.sort(key=lambda row: (row["workload"], row["loop"], row["engine"], row["round"]))
    print("\n".join([*table(rows), *comparison(rows)]))
    print(json.dumps({"rows": rows}))


if __name__ == "__main__":
    main()
