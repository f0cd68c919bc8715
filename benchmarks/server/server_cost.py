"""What the server's own process costs beside the engine's: CPU time for each streamed token.

    python -m benchmarks.server.server_cost ARTIFACT [--streams 16] [--tokens 400] [--rounds 3]

Streams of one client are read while the engine decodes them together. CPU times of the server's
process, of the engine's and of the client's are the system's (/proc, so Linux only): others on the
machine make them longer only by what they do to caches, unlike wall time. The engine's process
spends its CPU time in all threads of a step. `share` is the server's CPU time for a step's tokens
over the time of such a step alone (`least`, as in `engine/decode_step.py`: the least time between
two steps that the client saw). Prints a table and one JSON line.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx

TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid: int) -> float:
    """User and system time of a process, all its threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def engine_of(server: int) -> int:
    """The child that has used the most."""
    children = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = stat.read_text().rpartition(") ")[2].split()[1]
        except OSError:
            continue
        if int(parent) == server:
            children.append(int(stat.parent.name))
    return max(children, key=cpu_seconds)


async def stream(url: str, tokens: int, begun: asyncio.Event, marks: list[float]) -> None:
    """One answer, read without looking at it: the bytes are split by a socket's reads only."""
    place = urlsplit(url)
    reader, writer = await asyncio.open_connection(place.hostname, place.port)
    asked = {"prompt": "one", "max_tokens": tokens, "ignore_eos": True, "stream": True}
    body = json.dumps(asked).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n"
    writer.write(f"{head}Content-Type: application/json\r\n\r\n".encode() + body)
    tail = b""
    while b"[DONE]" not in tail:
        piece = await reader.read(65536)
        assert piece, tail
        begun.set()
        marks.append(time.perf_counter())
        tail = (tail + piece)[-4096:]
    writer.close()


async def measure(url: str, server: int, streams: int, tokens: int) -> dict[str, float]:
    """One round."""
    engine = engine_of(server)
    begun, marks = asyncio.Event(), [[] for _ in range(streams)]  # type: ignore[var-annotated]
    before = cpu_seconds(server), cpu_seconds(engine)
    client = time.process_time()
    began = time.perf_counter()
    await asyncio.gather(*(stream(url, tokens, begun, mark) for mark in marks))
    made = streams * tokens
    gaps = [b - a for a, b in zip(marks[0], marks[0][1:], strict=False)]
    return {
        "server_us": 1e6 * (cpu_seconds(server) - before[0]) / made,
        "engine_us": 1e6 * (cpu_seconds(engine) - before[1]) / made,
        "client_us": 1e6 * (time.process_time() - client) / made,
        "wall_us": 1e6 * (time.perf_counter() - began) / made,
        "step_ms": 1e3 * statistics.quantiles(gaps, n=10)[0],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("artifact", type=Path)
    parser.add_argument("--streams", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    given = parser.parse_args()
    command = [sys.executable, "-m", "mlcc", "serve", str(given.artifact), "--port", "0"]
    command += ["--max-batch", str(given.streams), "--threads", str(given.threads)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    rows: list[dict[str, Any]] = []
    try:
        assert process.stdout
        url = next(word for line in process.stdout for word in line.split() if "http" in word)
        url = url.removesuffix("/v1")
        httpx.post(f"{url}/v1/completions", json={"prompt": "x", "max_tokens": 8}, timeout=600)
        for _ in range(given.rounds):
            rows.append(asyncio.run(measure(url, process.pid, given.streams, given.tokens)))
    finally:
        process.terminate()
        process.wait()
    for row in rows:
        row["share"] = row["server_us"] * given.streams / (1e3 * row["step_ms"])
    names = [*rows[0]]
    print("".join(f"{name:>12}" for name in names))
    for row in rows:
        print("".join(f"{row[name]:>12.4g}" for name in names))
    load = round(os.getloadavg()[0], 2)
    print(json.dumps({"streams": given.streams, "load": load, "rows": rows}))


if __name__ == "__main__":
    main()
