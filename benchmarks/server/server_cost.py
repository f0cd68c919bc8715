"""CPU time of the server's process per streamed token, beside the engine's process.

    python -m benchmarks.server.server_cost ARTIFACT [--streams 16] [--tokens 400] [--rounds 3]

One client reads several streams while the engine decodes them together. CPU times of the server,
the engine and the client come from /proc (Linux only): unlike wall time, other processes lengthen
them only through the caches. The engine's CPU time is that of all threads of a step. `share` is the
server's CPU time for a step's tokens over the time of such a step alone (`least`, as in
`engine/decode_step.py`: the least time between two steps, seen by the client). Prints a table and
one JSON line.
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
    """The child process with the most CPU time."""
    children = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = stat.read_text().rpartition(") ")[2].split()[1]
        except OSError:
            continue
        if int(parent) == server:
            children.append(int(stat.parent.name))
    return max(children, key=cpu_seconds)


async def stream(url: str, tokens: int, marks: list[float]) -> None:
    """Read one answer without parsing it; `marks` gets the time of each socket read."""
    address = urlsplit(url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    fields = {"prompt": "one", "max_tokens": tokens, "ignore_eos": True, "stream": True}
    body = json.dumps(fields).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n"
    writer.write(f"{head}Content-Type: application/json\r\n\r\n".encode() + body)
    tail = b""
    while b"[DONE]" not in tail:
        piece = await reader.read(65536)
        assert piece, tail
        marks.append(time.perf_counter())
        tail = (tail + piece)[-4096:]
    writer.close()


async def measure(url: str, server: int, streams: int, tokens: int) -> dict[str, float]:
    """Results of one round."""
    engine = engine_of(server)
    marks: list[list[float]] = [[] for _ in range(streams)]
    before = cpu_seconds(server), cpu_seconds(engine)
    client = time.process_time()
    start = time.perf_counter()
    await asyncio.gather(*(stream(url, tokens, mark) for mark in marks))
    count = streams * tokens
    gaps = [b - a for a, b in zip(marks[0], marks[0][1:], strict=False)]
    return {
        "server_us": 1e6 * (cpu_seconds(server) - before[0]) / count,
        "engine_us": 1e6 * (cpu_seconds(engine) - before[1]) / count,
        "client_us": 1e6 * (time.process_time() - client) / count,
        "wall_us": 1e6 * (time.perf_counter() - start) / count,
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
