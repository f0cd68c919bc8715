"""The longest gap of a server's event loop by body: each body at the limits, one after another.

    python -m benchmarks.server.loop_gaps ARTIFACT [--turns 3]

Starts `mlcc serve` under `loop_watch.py` and prints for each body, in ms and over all turns: the
longest gap that the machine did not cause, the largest callback of the loop and the longest garbage
collection. Linux only.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.server.serve import serving
from benchmarks.server.soak import Client
from benchmarks.server.soak_requests import CHAT, Call, chat, encoded, hostile_calls, large_calls

PAUSE_S = 0.5
COLUMNS = ("own_ms", "callback_cpu_ms", "collection_ms")


def calls() -> list[Call]:
    """Bodies of nearly 4 MiB, the default limit, and the large ones of the soak."""
    text, messages = "word, hello 123 " * 240_000, chat("a")
    names = {f"p{number}": {"type": "string"} for number in range(100_000)}
    bodies: list[tuple[str, str, dict[str, Any]]] = [
        ("text", "/tokenize", {"content": text}),
        ("text, with pieces", "/tokenize", {"content": text, "with_pieces": True}),
        ("ids to text", "/detokenize", {"tokens": [101, 7] * 500_000}),
        ("messages, template", "/apply-template", {"messages": messages * 120_000}),
        ("prompt of ids", "/v1/completions", {"prompt": [101, 7] * 500_000}),
        ("prompts", "/v1/completions", {"prompt": ["a"] * 800_000}),
        ("texts to embed", "/v1/embeddings", {"input": ["a"] * 800_000}),
        ("items", "/v1/responses", {"input": messages * 120_000}),
        ("messages", "/api/chat", {"messages": messages * 120_000}),
        ("long message", "/v1/messages", {"max_tokens": 1, "messages": chat(text)}),
        ("unknown fields", CHAT, {"messages": messages, **{f"x{n}": n for n in range(220_000)}}),
        ("nested lists", CHAT, {"messages": messages, "x": [[[[]]]] * 450_000}),
        ("biases", CHAT, {"messages": messages, "logit_bias": {str(n): 1 for n in range(330_000)}}),
        ("stop strings", CHAT, {"messages": messages, "stop": ["a"] * 800_000}),
        ("properties", CHAT, {"messages": messages, "max_tokens": 2, "response_format": {
            "type": "json_schema", "json_schema": {"name": "a", "schema": {
                "type": "object", "properties": names}}}}),
        ("echo with logprobs", "/v1/completions",
         {"prompt": "word, hello " * 400, "echo": True, "logprobs": 5, "max_tokens": 1}),
    ]  # fmt: skip
    large = [call for call in hostile_calls() if len(call.body) >= 64 << 10] + large_calls()
    return [Call(name, path, encoded(body)) for name, path, body in bodies] + large


@dataclass
class Watched:
    """A server whose loop is watched."""

    url: str
    process: subprocess.Popen[bytes]
    report: Path

    def largest(self) -> dict[str, Any]:
        """The largest values since the last time."""
        self.report.unlink(missing_ok=True)
        self.process.send_signal(signal.SIGUSR1)
        while True:
            time.sleep(PAUSE_S / 10)
            with suppress(OSError, ValueError):  # not there, or half written
                found: dict[str, Any] = json.loads(self.report.read_text())
                return found


@contextmanager
def watched(artifact: str) -> Iterator[Watched]:
    """Serve the artifact."""
    processes: list[subprocess.Popen[bytes]] = []
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "loop.json"
        program = [sys.executable, "-m", "benchmarks.server.loop_watch", str(report)]
        command = [*program, "serve", artifact, "--port"]
        with serving(lambda port: [*command, str(port)], processes.append) as url:
            yield Watched(url, processes[0], report)


def measure(server: Watched, bodies: list[Call]) -> dict[str, list[Any]]:
    """For each body the largest value of each column, with its description."""
    rows: dict[str, list[Any]] = {}
    for call in bodies:
        server.largest()
        asyncio.run(Client(server.url).send(call))
        time.sleep(PAUSE_S)  # what is freed after it belongs to it
        found = server.largest()
        rows[call.kind] = [next(iter(found[name]), [0.0, ""]) for name in COLUMNS]
    return rows


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("artifact")
    parser.add_argument("--turns", type=int, default=3, help="Requests of each body.")
    parser.add_argument("--only", default="", help="Part of the names of the bodies to send.")
    given = parser.parse_args()
    bodies = [call for call in calls() if given.only in call.kind]
    with watched(given.artifact) as server:
        turns = [measure(server, bodies) for _ in range(given.turns)]
    print("body", *COLUMNS, sep="\t")
    for call in bodies:
        columns = zip(*(turn[call.kind] for turn in turns), strict=True)
        worst = [max(column, key=lambda value: value[0]) for column in columns]
        print(call.kind, *(value for value, _ in worst), *(text for _, text in worst), sep="\t")


if __name__ == "__main__":
    main()
