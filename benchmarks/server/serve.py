"""A server under load: mlcc with and without its prefix cache, and llama-server if one is given.

    python -m benchmarks.server.serve ARTIFACT [--workloads short mixed] [--streams 8 16] [--rate 4]
        [--llama-server PATH --gguf MODEL-Q4_0.gguf] [--requests 40] [--rounds 3] [--quick]
        [--also "mlcc --speculate lookup" "llama-server -ctk q8_0 -ctv q8_0"]

Each server runs alone, in turn, round after round, in a process of its own; each workload is sent
by as many clients as `--streams` says (closed loop), or with `--rate` by a Poisson process (open
loop), the same to all and another one in each round. `--quick` is one round of all that is claimed
of servers: every workload at 8 streams, some at 16, one as an open loop, without the prefix cache
only where prompts begin alike. `--also` adds servers with options of their own, and after `mlcc=`
of another artifact. Prints a table, what mlcc is beside the others, and one JSON line: percentiles,
in milliseconds, of the time to the first token, of the time per output token (an answer's mean) and
of gaps between pieces; and output tokens a second of all.
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
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.server.load_generator import WORKLOADS, Seen, Words, closed_loop, open_loop

MLCC, BARE, LLAMA = "mlcc", "mlcc, no prefix cache", "llama-server"

SHARES = (50, 95, 99)
START_S = 300.0
CONTEXT = 8192
Command = Callable[[int], Sequence[str]]
"""A server's command line, by its port."""


@contextmanager
def serving(
    command: Command, begun: Callable[[subprocess.Popen[bytes]], object] = lambda process: None
) -> Iterator[str]:
    """A server that answers, and its URL. `begun` is given its process."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    quiet = subprocess.DEVNULL
    process = subprocess.Popen(list(command(port)), stdout=quiet, stderr=quiet)
    try:
        begun(process)
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


@dataclass(frozen=True)
class Case:
    """One workload, and how it is sent."""

    workload: str
    streams: int
    """Clients of a closed loop."""
    rate: float | None
    """Of an open loop, requests a second; None = closed."""
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
ALIKE = ("shared-prefix", "multi-turn")
"""Workloads in which prompts begin alike."""


def cases(given: argparse.Namespace) -> list[Case]:
    """What is measured of each server in a round."""
    if given.quick:
        return [case for case in QUICK if case.workload in given.workloads]
    streams = given.streams[:1] if given.rate else given.streams
    return [
        Case(name, count, given.rate, given.requests)
        for name in given.workloads
        for count in streams
    ]


def measure(url: str, case: Case, vocab: int, seed: int) -> dict[str, Any]:
    """One workload at one server."""
    wishes = WORKLOADS[case.workload](Words(seed, vocab), case.requests)
    start = time.perf_counter()
    if case.rate:
        found = asyncio.run(open_loop(url, wishes, case.rate, seed))
    else:
        found = asyncio.run(closed_loop(url, wishes, case.streams))
    return summary(found, time.perf_counter() - start)


def engines(given: argparse.Namespace, streams: int) -> dict[str, Command]:
    """All servers, by name, for so many clients at most."""
    threads = str(given.threads)
    serve = [sys.executable, "-m", "mlcc", "serve", str(given.artifact), "--threads", threads]
    serve += ["--max-queue", "10000", "--max-batch", str(streams)]
    found: dict[str, Command] = {
        MLCC: lambda port: [*serve, "--port", str(port)],
        BARE: lambda port: [*serve, "--no-prefix-cache", "--port", str(port)],
    }
    if given.llama_server:
        # It divides --ctx-size among its slots.
        llama = [*given.llama_server.split(), "-m", str(given.gguf), "-t", threads]
        llama += ["-np", str(streams), "-c", str(CONTEXT * streams), "--no-webui"]
        found[LLAMA] = lambda port: [*llama, "--port", str(port)]
    for text in given.also:
        found[text] = _with(found, serve, *text.split())
    return found


def _with(found: dict[str, Command], serve: Sequence[str], name: str, *options: str) -> Command:
    """A server with more options; `mlcc=FOLDER` serves another artifact."""
    name, _, folder = name.partition("=")
    if name not in (MLCC, LLAMA) or name not in found:
        raise SystemExit(f"--also {name}: 'mlcc', or 'llama-server' where --llama-server is given")
    if folder:
        again = [folder if part == serve[4] else part for part in serve]
        return lambda port: [*again, *options, "--port", str(port)]
    return lambda port: [*found[name](port), *options]


def beside(rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    """What mlcc is beside the others, of medians over rounds."""
    found: dict[tuple[str, str], dict[str, list[dict[str, Any]]]] = {}
    for row in rows:
        case = found.setdefault((row["workload"], row["loop"]), {})
        case.setdefault(row["engine"], []).append(row)
    for (workload, loop), engines in found.items():
        for other in engines:
            if MLCC in engines and other != MLCC:
                speed, first = (
                    [median(value(row) for row in engines[name]) for name in (MLCC, other)]
                    for value in (_speed, _first)
                )
                yield (
                    f"{workload}, {loop}: {speed[0] / max(speed[1], 1e-9):.2f} times the output of "
                    f"{other}; first token after {first[0] / max(first[1], 1e-9):.2f} of its time"
                )


def _speed(row: dict[str, Any]) -> float:
    return float(row["output_tokens_per_s"])


def _first(row: dict[str, Any]) -> float:
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
    vocab, wanted, rows = manifest["model"]["vocab_size"], cases(given), []
    for number in range(given.rounds or (1 if given.quick else 3)):
        for engine, command in engines(given, max(case.streams for case in wanted)).items():
            todo = [x for x in wanted if engine != BARE or not given.quick or x.workload in ALIKE]
            with serving(command) as url:
                for case in todo:
                    # Other prompts in each round, and for each case: no cache has them.
                    seed = given.seed + 1000 * number + 100 * wanted.index(case)
                    found = measure(url, case, vocab, seed)
                    what = {"workload": case.workload, "loop": case.loop, "engine": engine}
                    rows.append({"round": number, **what, **found})
                    print(*table(rows[-1:]), sep="\n", file=sys.stderr, flush=True)
    rows.sort(key=lambda row: (row["workload"], row["loop"], row["engine"], row["round"]))
    print("\n".join([*table(rows), *beside(rows)]))
    print(json.dumps({"rows": rows}))


if __name__ == "__main__":
    main()
