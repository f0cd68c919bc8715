"""A soak test: thousands of mixed requests to one server; does anything grow, stall or get lost?

    python -m benchmarks.server.soak ARTIFACT [--requests 20000] [--clients 24] [--kv-pages 160]
        [--kills 20] [--sleeps 20] [--tls] [--watch] [--grpc-port 8001]

Requests of all protocols (`soak_requests.py`), random from one seed: short and long prompts, half
of them with a shared prefix; greedy and sampled; several answers to one prompt; grammars; slow
readers; clients that disconnect; invalid and huge bodies; a batch beneath all that
(`soak_batch.py`), and with `--grpc-port` calls by gRPC (`soak_grpc.py`). A Whisper gets forms with
recordings in place of all these (`soak_speech.py`), an encoder texts (`soak_encoders.py`). The pool
is so small that sequences are preempted and recomputed. `--kills` ends the engine, or a process
that reads prompts or bodies, by SIGKILL that often; `--sleeps` sends the server to sleep and wakes
it: requests meanwhile get that as the reason. A separate connection asks `/ready` every 10 ms; its
times show stalls of the event loop, and `--watch` tells those apart that the machine caused
(`loop_watch.py`).
Prints samples (memory, threads and open files of the server's processes, pages in use) and one JSON
line.
Exits with 1 if an answer was lost or differs from that of a quiet server, if a page or thread is
still held when all is idle, or if memory in the last quarter of the requests is more than 5 % above
the most of the first half. Linux only. Not a benchmark of speed: `serve.py` is.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import signal
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from benchmarks.server.ready_ping import pinging
from benchmarks.server.serve import serving
from benchmarks.server.soak_batch import BatchBeneath
from benchmarks.server.soak_encoders import EncoderRequests
from benchmarks.server.soak_grpc import GrpcBeneath
from benchmarks.server.soak_requests import Call, Outcome, Requests, outcome, words
from benchmarks.server.soak_speech import SpeechRequests

SAMPLES = 40
"""Number of printed samples."""
ASLEEP_S = 0.1
"""Pause of a client that a sleeping server has refused."""
IDLE_S = 60.0
"""Seconds within which all pages must be free after the last request."""
GROWTH = 1.05
MOST_WRONG = 10
"""Wrong answers kept for the report, and the letters of each."""
WRONG_LETTERS = 300


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


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:  # it has ended
        return b""


def sample(pid: int, url: str, requests: int, context: ssl.SSLContext | None = None) -> Sample:
    """Read all processes of the server and the engine's counters."""
    mib, threads, files = 0.0, 0, 0
    for process in process_tree(pid):
        try:
            text = Path(f"/proc/{process}/status").read_text()
        except OSError:  # it has just ended
            continue
        status = dict(line.split(":", 1) for line in text.splitlines())
        if "VmRSS" not in status:  # nor has a zombie memory
            continue
        mib += int(status["VmRSS"].split()[0]) / 1024
        threads += int(status["Threads"])
        files += len([*Path(f"/proc/{process}/fd").iterdir()])
    values = counters(url, context)
    names = ("pages", "pages_free", "preemptions_total")  # which an engine that sleeps lacks
    pages, free, preemptions = (int(values.get(f"mlcc_engine_{name}", 0)) for name in names)
    return Sample(requests, round(mib, 1), threads, files, pages - free, preemptions)


def counters(url: str, context: ssl.SSLContext | None = None) -> dict[str, float]:
    """The server's metrics by name, without labels."""
    with urllib.request.urlopen(f"{url}/metrics", timeout=30, context=context) as answer:
        lines = answer.read().decode().splitlines()
    pairs = (line.rsplit(" ", 1) for line in lines if line and not line.startswith("#"))
    return {name.split("{")[0]: float(value) for name, value in pairs}


def model_of(url: str, context: ssl.SSLContext | None = None) -> dict[str, Any]:
    """The server's model, as /v1/models has it."""
    with urllib.request.urlopen(f"{url}/v1/models", timeout=30, context=context) as answer:
        return dict(json.load(answer)["data"][0])


class Client:
    """Sends requests, each on a connection of its own. context: for a server with TLS."""

    def __init__(self, url: str, context: ssl.SSLContext | None = None) -> None:
        self._address = urlsplit(url)
        self._context = context

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A new connection."""
        host, port = self._address.hostname, self._address.port
        return await asyncio.open_connection(host, port, limit=1 << 26, ssl=self._context)

    async def send(self, call: Call) -> tuple[Outcome, str]:
        """How the call ended, and the body of the response."""
        head = (
            f"POST {call.path} HTTP/1.1\r\nHost: {self._address.netloc}\r\nConnection: close\r\n"
            f"Content-Type: {call.content_type}\r\nContent-Length: {len(call.body)}\r\n\r\n"
        )
        try:
            reader, writer = await self.connect()
        except OSError:
            return "lost", ""
        status, lines, left = 0, list[bytes](), False
        try:
            writer.write(head.encode() + call.body)
            status = int((await reader.readline()).split(b" ")[1:2][0] or b"0")
            while line := await reader.readline():
                lines.append(line)
                left = sum(each.startswith(b"data: {") for each in lines) >= call.leaves_after
                if left:
                    break
                if call.pause_s:
                    await asyncio.sleep(call.pause_s)
        except (OSError, IndexError, ValueError):
            pass  # what came decides
        finally:
            writer.close()
        answer = b"".join(lines).decode(errors="replace")
        return outcome(call, status, answer, left), answer


class Soak:
    """The clients of one server."""

    def __init__(
        self,
        url: str,
        pid: int,
        *,
        requests: int,
        clients: int,
        vocab: int,
        seed: int = 11,
        kills: int = 0,
        sleeps: int = 0,
        grammars: bool = True,
        context: ssl.SSLContext | None = None,
        grpc_port: int = 0,
        own: SpeechRequests | EncoderRequests | None = None,
    ) -> None:
        """own: the requests of a model that transcribes, or of an encoder, which answer no
        others."""
        self._url, self._pid, self._count, self._clients = url, pid, requests, clients
        self._client = Client(url, context)
        self._batch = BatchBeneath(url, context) if own is None else None
        self._context = context
        model = model_of(url, context)
        sees = "image" in model.get("input_modalities", ())
        self._grpc = GrpcBeneath(grpc_port, str(model["id"]), seed)
        self._requests = own or Requests(seed, vocab, str(model["id"]), grammars, sees)
        self._rng = random.Random(seed)
        self._kills, self._kill_each = kills, requests // (kills + 1)
        self._sleeps, self._sleep_each = sleeps, requests // (sleeps + 1)
        self._sent = 0
        self.quiet: dict[str, str] = {}
        """The words of the fixed calls' answers, from before the load."""
        self.killed = self.slept = 0
        self.ready_ms: dict[str, float] = {}
        """Percentiles of the times of `/ready`."""
        self.wrong: list[str] = []
        """The kind and the last part of the first answers that were lost or differ."""
        self.outcomes: Counter[str] = Counter()
        self.samples: list[Sample] = []

    async def run(self) -> None:
        """Send all requests, with samples of the server in between."""
        for call in self._requests.fixed:
            found, answer = await self._client.send(call)
            self.quiet[call.kind] = words(call, answer)
            assert found == "answered", (call, answer)
        if self._batch:
            await self._batch.begin()
        await self._grpc.begin()
        with pinging(self._url, verify=self._context is None) as self.ready_ms:
            await asyncio.gather(*(self._work() for _ in range(self._clients)))
        await self._grpc.end(bool(self.killed or self.slept))
        self.outcomes.update({f"grpc {name}": n for name, n in self._grpc.outcomes.items()})
        if self._batch:
            await self._batch.end(bool(self.killed))
        end = time.monotonic() + IDLE_S
        while (last := await asyncio.to_thread(self._sample)).held_pages and time.monotonic() < end:
            await asyncio.sleep(0.5)
        self._record(last)

    async def _work(self) -> None:
        while self._sent < self._count:
            self._sent += 1
            if self.killed < self._kills and self._sent % self._kill_each == 0:
                self._kill_one()
            if self.slept < self._sleeps and self._sent % self._sleep_each == 0:
                await self._sleep_once()
            if self._sent % max(1, self._count // SAMPLES) == 0:
                self._record(await asyncio.to_thread(self._sample))
            call = self._requests.draw()
            found, answer = await self._client.send(call)
            if call.same and found == "answered" and words(call, answer) != self.quiet[call.kind]:
                found = "differs"
            if found in ("lost", "differs") and len(self.wrong) < MOST_WRONG:
                self.wrong.append(f"{call.kind}: {found}: {answer[-WRONG_LETTERS:]}")
            self.outcomes[f"{call.kind}: {found}"] += 1
            if found == "asleep":
                await asyncio.sleep(ASLEEP_S)

    async def _sleep_once(self) -> None:
        """Send the server to sleep, once what runs has ended, and wake it."""
        self.slept += 1
        for path in ("/sleep?mode=wait", "/wake_up"):
            found, answer = await self._client.send(Call(path, path, b"", ("content-length: 0",)))
            if found != "answered" and not (found == "broken" and self.killed):
                self.wrong.append(f"{path}: {found}: {answer[-WRONG_LETTERS:]}")
                self.outcomes[f"{path}: lost"] += 1

    def _kill_one(self) -> None:
        """SIGKILL a process of the server that is not its first: engine, prompts or bodies."""
        children = [pid for pid in process_tree(self._pid)[1:] if b"spawn_main" in _command(pid)]
        if children:
            with suppress(ProcessLookupError):
                os.kill(self._rng.choice(children), signal.SIGKILL)
            self.killed += 1

    def _sample(self) -> Sample:
        return sample(self._pid, self._url, self._sent, self._context)

    def _record(self, taken: Sample) -> None:
        self.samples.append(taken)
        print("  ".join(f"{k} {v}" for k, v in taken._asdict().items()), flush=True)

    def faults(self) -> list[str]:
        """Descriptions of leaks and lost answers; empty if there are none."""
        quarter = len(self.samples) // 4
        early, late = self.samples[: 2 * quarter], self.samples[-quarter - 1 : -1]
        faults = []
        wrong = ("lost", "differs", *(() if self.killed else ("broken",)))
        wrong += () if self.slept else ("asleep",)
        if lost := [name for name in self.outcomes if name.endswith(wrong)]:
            faults.append(f"answers were lost or differ: {lost}")
        faults += [*(self._batch.faults if self._batch else ()), *self._grpc.faults]
        if (held := self.samples[-1].held_pages) > 0:
            faults.append(f"{held} pages stay taken")
        for name in ("mib", "threads", "files"):
            # the most: while a process that was killed starts again, a sample lacks it
            before = max(getattr(sample, name) for sample in early)
            after = median(getattr(sample, name) for sample in late)
            if after > GROWTH * before:
                faults.append(f"{name} grew from {before} to {after}")
        return faults


def certificate(folder: Path) -> tuple[Path, ssl.SSLContext]:
    """A certificate for this machine with its key, and the context of a client that trusts it."""
    import trustme

    authority, path = trustme.CA(), folder / "server.pem"
    authority.issue_cert("localhost", "127.0.0.1").private_key_and_cert_chain_pem.write_to_path(
        path
    )
    context = ssl.create_default_context()
    authority.configure_trust(context)
    return path, context


def report(soak: Soak, seconds: float) -> dict[str, Any]:
    """The figures of a soak."""
    return {
        "seconds": round(seconds, 1),
        "outcomes": dict(sorted(soak.outcomes.items())),
        "killed": soak.killed,
        "slept": soak.slept,
        "ready_ms": soak.ready_ms,
        "first": soak.samples[0]._asdict(),
        "last": soak.samples[-1]._asdict(),
        "faults": soak.faults(),
        "wrong": soak.wrong,
    }


def requests_of(manifest: dict[str, Any], seed: int) -> SpeechRequests | EncoderRequests | None:
    """The requests of a model that writes no text; None = it does."""
    if (audio := manifest.get("audio")) is not None:
        return SpeechRequests(seed, bool(audio.get("languages")))
    if (encoder := manifest.get("encoder")) is not None:
        return EncoderRequests(seed, encoder["task"], manifest["model"]["name"])
    return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("artifact", type=Path)
    parser.add_argument("--requests", type=int, default=20_000)
    parser.add_argument("--clients", type=int, default=24)
    parser.add_argument("--kv-pages", type=int, default=40)
    parser.add_argument("--seed", type=int, default=11)
    parser.add_argument("--kills", type=int, default=0)
    parser.add_argument("--sleeps", type=int, default=0, help="times that the server sleeps")
    parser.add_argument("--tls", action="store_true")
    parser.add_argument("--grpc-port", type=int, default=0, help="calls by gRPC too")
    parser.add_argument("--watch", action="store_true", help="measure the server's event loop")
    given = parser.parse_args()
    manifest = json.loads((given.artifact / "mlcc.json").read_text())
    vocab, own = manifest["model"]["vocab_size"], requests_of(manifest, given.seed)
    processes: list[subprocess.Popen[bytes]] = []
    with tempfile.TemporaryDirectory() as folder:
        context, watched = None, Path(folder) / "loop.json"
        program = ["benchmarks.server.loop_watch", str(watched)] if given.watch else ["mlcc"]
        serve = [sys.executable, "-m", *program, "serve", str(given.artifact)]
        serve += ["--max-queue", "10000"]
        serve += [] if manifest.get("encoder") else ["--kv-pages", str(given.kv_pages)]
        if given.grpc_port:
            serve += ["--grpc-port", str(given.grpc_port)]
        if given.tls:
            path, context = certificate(Path(folder))
            serve += ["--ssl-certfile", str(path)]
        command = [*serve, "--port"]
        with serving(lambda port: [*command, str(port)], processes.append, context) as url:
            soak = Soak(
                url, processes[0].pid, requests=given.requests, clients=given.clients, vocab=vocab,
                seed=given.seed, kills=given.kills, sleeps=given.sleeps, context=context,
                grpc_port=given.grpc_port, own=own,
            )  # fmt: skip
            start = time.monotonic()
            asyncio.run(soak.run())
            found = report(soak, time.monotonic() - start)
        if given.watch:
            found["loop"] = json.loads(watched.read_text())
    print(json.dumps(found))
    sys.exit(1 if found["faults"] else 0)


if __name__ == "__main__":
    main()
