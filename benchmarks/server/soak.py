"""A server that is asked for hours in a minute: does anything grow?

    python -m benchmarks.server.soak ARTIFACT [--requests 20000] [--clients 24] [--kv-pages 160]

Clients ask at random, by one seed: short and long prompts, half of them with a beginning that
others have too; greedy and drawn; several answers of one prompt; answers held to a grammar; some
hang up amid an answer, and some ask what is refused. The pool is so small that sequences are put
off and computed again. Prints a line now and then (memory, threads and open files of the server's
processes, pages that are not free), and one JSON line. Ends with 1 if an answer was lost, a page or
a thread stays taken once all is quiet, or memory grew by more than a twentieth from the second
quarter of the requests to the last. Linux only. Not a benchmark of speed: `serve.py` is.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from benchmarks.server.serve import serving

SAMPLES = 40
"""Lines that are printed."""
QUIET_S = 60.0
"""Within which all pages are free once nobody asks any more."""
GROWTH = 1.05


class Sample(NamedTuple):
    """What a server holds at one moment."""

    requests: int
    mib: float
    """Resident, over all its processes."""
    threads: int
    files: int
    held_pages: int
    preemptions: int


def family(pid: int) -> list[int]:
    """A process and all below it."""
    found = [pid]
    for parent in found:
        for listed in Path(f"/proc/{parent}/task").glob("*/children"):  # a thread may start one
            found += map(int, listed.read_text().split())
    return found


def sample(pid: int, url: str, requests: int) -> Sample:
    """Look at all processes, and ask for the engine's counters."""
    mib, threads, files = 0.0, 0, 0
    for one in family(pid):
        status = dict(
            line.split(":", 1) for line in Path(f"/proc/{one}/status").read_text().splitlines()
        )
        mib += int(status["VmRSS"].split()[0]) / 1024
        threads += int(status["Threads"])
        files += len([*Path(f"/proc/{one}/fd").iterdir()])
    told = counters(url)
    held = int(told["mlcc_engine_pages"] - told["mlcc_engine_pages_free"])
    put_off = int(told["mlcc_engine_preemptions_total"])
    return Sample(requests, round(mib, 1), threads, files, held, put_off)


def counters(url: str) -> dict[str, float]:
    """By name, of the one model."""
    with urllib.request.urlopen(f"{url}/metrics", timeout=30) as answer:
        lines = answer.read().decode().splitlines()
    pairs = (line.rsplit(" ", 1) for line in lines if line and not line.startswith("#"))
    return {name.split("{")[0]: float(value) for name, value in pairs}


def wish(draw: random.Random, vocab: int) -> tuple[str, dict[str, Any], int]:
    """What kind it is, the fields of a request, and after how many pieces its client hangs up."""
    kind = draw.choices(
        ("plain", "several", "grammar", "hangs up", "refused"), (50, 10, 15, 20, 5)
    )[0]
    length = draw.choice((8, 24, 60, 200))
    prompt = [draw.randrange(vocab) for _ in range(length)]
    if draw.random() < 0.5:
        same = random.Random(draw.randrange(4))
        prompt = [*(same.randrange(vocab) for _ in range(96)), *prompt]
    fields: dict[str, Any] = {
        "prompt": prompt, "max_tokens": draw.choice((1, 8, 16, 120)),
        "seed": draw.randrange(1 << 30),
        "temperature": draw.choice((0, 1)), "stream": kind != "several",
        "ignore_eos": draw.random() < 0.5,
    }  # fmt: skip
    if kind == "several":
        fields["n"] = 3
    elif kind == "grammar":
        fields["structured_outputs"] = {"regex": f"[a-z]{{4,{draw.randrange(5, 40)}}}"}
    elif kind == "refused":
        fields["temperature"] = -1
    return kind, fields, draw.randrange(1, 6) if kind == "hangs up" else 1 << 30


async def ask(url: str, fields: dict[str, Any], pieces: int) -> str:
    """What became of it: "ended", "refused", "left" (by its client), or "lost"."""
    place = urlsplit(url)
    body = json.dumps(fields).encode()
    head = (
        f"POST /v1/completions HTTP/1.1\r\nHost: {place.netloc}\r\nConnection: close\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    reader, writer = await asyncio.open_connection(place.hostname, place.port, limit=1 << 20)
    try:
        writer.write(head.encode() + body)
        status = (await reader.readline()).split(b" ")[1:2]
        if status != [b"200"]:
            return "refused" if status == [b"400"] else "lost"
        ended = False
        while line := await reader.readline():
            ended = ended or b'"finish_reason":"' in line.replace(b" ", b"")
            pieces -= line.startswith(b"data: {")
            if pieces <= 0:
                return "left"
        return "ended" if ended else "lost"
    except OSError:
        return "lost"
    finally:
        writer.close()


class Soak:
    """All clients of one server."""

    def __init__(self, url: str, pid: int, given: argparse.Namespace, vocab: int) -> None:
        self._url, self._pid, self._given, self._vocab = url, pid, given, vocab
        self._draw = random.Random(given.seed)
        self._asked = 0
        self.outcomes: Counter[str] = Counter()
        self.samples: list[Sample] = []

    async def run(self) -> None:
        """Ask everything, and look at the server in between."""
        await asyncio.gather(*(self._client() for _ in range(self._given.clients)))
        end = time.monotonic() + QUIET_S
        while (last := self._look()).held_pages and time.monotonic() < end:
            await asyncio.sleep(0.5)
        self._keep(last)

    async def _client(self) -> None:
        while self._asked < self._given.requests:
            self._asked += 1
            if self._asked % max(1, self._given.requests // SAMPLES) == 0:
                self._keep(await asyncio.to_thread(self._look))
            kind, fields, pieces = wish(self._draw, self._vocab)
            self.outcomes[f"{kind}: {await ask(self._url, fields, pieces)}"] += 1

    def _look(self) -> Sample:
        return sample(self._pid, self._url, self._asked)

    def _keep(self, found: Sample) -> None:
        self.samples.append(found)
        print("  ".join(f"{k} {v}" for k, v in found._asdict().items()), flush=True)

    def faults(self) -> list[str]:
        """What is not as it was."""
        quarter = len(self.samples) // 4
        early, late = self.samples[quarter : 2 * quarter], self.samples[-quarter - 1 : -1]
        found = []
        if lost := [name for name in self.outcomes if name.endswith("lost")]:
            found.append(f"answers were lost: {lost}")
        if (held := self.samples[-1].held_pages) > 0:
            found.append(f"{held} pages stay taken")
        for name in ("mib", "threads", "files"):
            before, after = (max(getattr(s, name) for s in part) for part in (early, late))
            if after > GROWTH * before:
                found.append(f"{name} grew from {before} to {after}")
        return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("artifact", type=Path)
    parser.add_argument("--requests", type=int, default=20_000)
    parser.add_argument("--clients", type=int, default=24)
    parser.add_argument("--kv-pages", type=int, default=40)
    parser.add_argument("--seed", type=int, default=11)
    given = parser.parse_args()
    vocab = json.loads((given.artifact / "mlcc.json").read_text())["model"]["vocab_size"]
    processes: list[subprocess.Popen[bytes]] = []
    serve = [sys.executable, "-m", "mlcc", "serve", str(given.artifact), "--max-queue", "10000"]
    serve += ["--kv-pages", str(given.kv_pages)]
    with serving(lambda port: [*serve, "--port", str(port)], processes.append) as url:
        soak = Soak(url, processes[0].pid, given, vocab)
        began = time.monotonic()
        asyncio.run(soak.run())
        seconds = time.monotonic() - began
    faults = soak.faults()
    print(json.dumps(
        {
            "seconds": round(seconds, 1),
            "outcomes": dict(sorted(soak.outcomes.items())),
            "first": soak.samples[0]._asdict(),
            "last": soak.samples[-1]._asdict(),
            "faults": faults,
        }
    ))  # fmt: skip
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
