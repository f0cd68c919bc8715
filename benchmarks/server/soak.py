"""A soak test: thousands of mixed requests to one server; does memory, threads or pages grow?

    python -m benchmarks.server.soak ARTIFACT [--requests 20000] [--clients 24] [--kv-pages 160]

Requests are random, from one seed: short and long prompts, half of them with a shared prefix;
greedy and sampled; several answers to one prompt; grammars; some clients disconnect during an
answer, and some requests are invalid. The pool is so small that sequences are preempted and
recomputed. Prints samples (memory, threads and open files of the server's processes, pages in use)
and one JSON line. Exits with 1 if an answer was lost, if a page or thread is still held when all is
idle, or if memory grew by more than 5 % from the second quarter of the requests to the last. Linux
only. Not a benchmark of speed: `serve.py` is.
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
"""Number of printed samples."""
IDLE_S = 60.0
"""Seconds within which all pages must be free after the last request."""
GROWTH = 1.05


class Sample(NamedTuple):
    """The resources of a server at one moment."""

    requests: int
    mib: float
    """Resident memory of all processes."""
    threads: int
    files: int
    held_pages: int
    preemptions: int


def process_tree(pid: int) -> list[int]:
    """A process and its descendants."""
    pids = [pid]
    for parent in pids:
        for children in Path(f"/proc/{parent}/task").glob(
            "*/children"
        ):  # any thread may start a process
            pids += map(int, children.read_text().split())
    return pids


def sample(pid: int, url: str, requests: int) -> Sample:
    """Read all processes of the server and the engine's counters."""
    mib, threads, files = 0.0, 0, 0
    for process in process_tree(pid):
        status = dict(
            line.split(":", 1) for line in Path(f"/proc/{process}/status").read_text().splitlines()
        )
        mib += int(status["VmRSS"].split()[0]) / 1024
        threads += int(status["Threads"])
        files += len([*Path(f"/proc/{process}/fd").iterdir()])
    values = counters(url)
    held = int(values["mlcc_engine_pages"] - values["mlcc_engine_pages_free"])
    preemptions = int(values["mlcc_engine_preemptions_total"])
    return Sample(requests, round(mib, 1), threads, files, held, preemptions)


def counters(url: str) -> dict[str, float]:
    """The server's metrics by name, without labels."""
    with urllib.request.urlopen(f"{url}/metrics", timeout=30) as answer:
        lines = answer.read().decode().splitlines()
    pairs = (line.rsplit(" ", 1) for line in lines if line and not line.startswith("#"))
    return {name.split("{")[0]: float(value) for name, value in pairs}


def random_request(rng: random.Random, vocab: int) -> tuple[str, dict[str, Any], int]:
    """(kind, fields of the request, number of chunks after which the client disconnects)."""
    kind = rng.choices(("plain", "several", "grammar", "hangs up", "refused"), (50, 10, 15, 20, 5))[
        0
    ]
    length = rng.choice((8, 24, 60, 200))
    prompt = [rng.randrange(vocab) for _ in range(length)]
    if rng.random() < 0.5:
        prefix = random.Random(rng.randrange(4))
        prompt = [*(prefix.randrange(vocab) for _ in range(96)), *prompt]
    fields: dict[str, Any] = {
        "prompt": prompt, "max_tokens": rng.choice((1, 8, 16, 120)),
        "seed": rng.randrange(1 << 30),
        "temperature": rng.choice((0, 1)), "stream": kind != "several",
        "ignore_eos": rng.random() < 0.5,
    }  # fmt: skip
    if kind == "several":
        fields["n"] = 3
    elif kind == "grammar":
        fields["structured_outputs"] = {"regex": f"[a-z]{{4,{rng.randrange(5, 40)}}}"}
    elif kind == "refused":
        fields["temperature"] = -1
    return kind, fields, rng.randrange(1, 6) if kind == "hangs up" else 1 << 30


async def send(url: str, fields: dict[str, Any], chunks: int) -> str:
    """The outcome: "ended", "refused", "left" (the client disconnected) or "lost"."""
    address = urlsplit(url)
    body = json.dumps(fields).encode()
    head = (
        f"POST /v1/completions HTTP/1.1\r\nHost: {address.netloc}\r\nConnection: close\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    reader, writer = await asyncio.open_connection(address.hostname, address.port, limit=1 << 20)
    try:
        writer.write(head.encode() + body)
        status = (await reader.readline()).split(b" ")[1:2]
        if status != [b"200"]:
            return "refused" if status == [b"400"] else "lost"
        ended = False
        while line := await reader.readline():
            ended = ended or b'"finish_reason":"' in line.replace(b" ", b"")
            chunks -= line.startswith(b"data: {")
            if chunks <= 0:
                return "left"
        return "ended" if ended else "lost"
    except OSError:
        return "lost"
    finally:
        writer.close()


class Soak:
    """The clients of one server."""

    def __init__(self, url: str, pid: int, given: argparse.Namespace, vocab: int) -> None:
        self._url, self._pid, self._given, self._vocab = url, pid, given, vocab
        self._rng = random.Random(given.seed)
        self._sent = 0
        self.outcomes: Counter[str] = Counter()
        self.samples: list[Sample] = []

    async def run(self) -> None:
        """Send all requests, with samples of the server in between."""
        await asyncio.gather(*(self._client() for _ in range(self._given.clients)))
        end = time.monotonic() + IDLE_S
        while (last := self._sample()).held_pages and time.monotonic() < end:
            await asyncio.sleep(0.5)
        self._record(last)

    async def _client(self) -> None:
        while self._sent < self._given.requests:
            self._sent += 1
            if self._sent % max(1, self._given.requests // SAMPLES) == 0:
                self._record(await asyncio.to_thread(self._sample))
            kind, fields, chunks = random_request(self._rng, self._vocab)
            self.outcomes[f"{kind}: {await send(self._url, fields, chunks)}"] += 1

    def _sample(self) -> Sample:
        return sample(self._pid, self._url, self._sent)

    def _record(self, taken: Sample) -> None:
        self.samples.append(taken)
        print("  ".join(f"{k} {v}" for k, v in taken._asdict().items()), flush=True)

    def faults(self) -> list[str]:
        """Descriptions of leaks and lost answers; empty if there are none."""
        quarter = len(self.samples) // 4
        early, late = self.samples[quarter : 2 * quarter], self.samples[-quarter - 1 : -1]
        faults = []
        if lost := [name for name in self.outcomes if name.endswith("lost")]:
            faults.append(f"answers were lost: {lost}")
        if (held := self.samples[-1].held_pages) > 0:
            faults.append(f"{held} pages stay taken")
        for name in ("mib", "threads", "files"):
            before, after = (max(getattr(s, name) for s in part) for part in (early, late))
            if after > GROWTH * before:
                faults.append(f"{name} grew from {before} to {after}")
        return faults


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
        start = time.monotonic()
        asyncio.run(soak.run())
        seconds = time.monotonic() - start
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
