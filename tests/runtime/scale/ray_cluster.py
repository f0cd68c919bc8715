"""A Ray cluster for all tests of a file, and `mlcc serve --ray` on it, both in separate
processes."""

from __future__ import annotations

import json
import os
import re
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx

from tests.e2e.conformance.conftest import API_KEY
from tests.helpers.processes import below, command_of
from tests.runtime.scale.ray_processes import RAYS, replicas_below

KEY = {"Authorization": f"Bearer {API_KEY}"}
_PROGRAM = Path(__file__).with_name("ray_program.py")


@dataclass(frozen=True)
class Cluster:
    """A running Ray cluster, started by a process."""

    process: subprocess.Popen[Any]
    address: str
    token: Mapping[str, str]
    """Environment variables that clients of the cluster need."""


class Program(Cluster):
    """A running `ray_program.py`."""

    def do(self, **asked: object) -> Any:
        """Send a command; returns the reply."""
        assert self.process.stdin and self.process.stdout
        self.process.stdin.write(json.dumps(asked) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        assert line, "the program has ended"
        return json.loads(line)


@dataclass(frozen=True)
class Served:
    """A server, and the process below which its replicas are."""

    url: str
    above: int
    process: subprocess.Popen[str] | None = None
    """The server's own process, if it is `mlcc serve`."""

    def chat(self, text: str, tokens: int = 8) -> dict[str, Any]:
        place = f"{self.url}/v1/chat/completions"
        answer = httpx.post(place, json=body(text, tokens), headers=KEY, timeout=120)
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    def metrics(self) -> str:
        return httpx.get(f"{self.url}/metrics", headers=KEY, timeout=60).text

    def replicas(self, deployment: bytes = b"mlcc-engine") -> list[int]:
        """Processes of Ray's that are replicas of this deployment."""
        return replicas_below(self.above, deployment)

    def end(self) -> None:
        """Terminate the server's process and wait for it. Idempotent."""
        assert self.process is not None
        self.process.terminate()
        assert self.process.wait(timeout=120) in (0, -15, 143)


def body(text: str, tokens: int, **more: object) -> dict[str, object]:
    """The body of a request for `tokens` tokens."""
    return {
        "messages": [{"role": "user", "content": text}],
        "max_tokens": tokens, "temperature": 0, "ignore_eos": True, **more,
    }  # fmt: skip


def stream(served: Served, text: str, tokens: int) -> str:
    """How a stream ended: "complete", "aborted" (by the typed error), or a description of a bug."""
    asked = body(text, tokens, stream=True, stream_options={"include_usage": True})
    place = f"{served.url}/v1/chat/completions"
    reasons, stderr, last = 0, 0, ""
    with httpx.stream("POST", place, json=asked, headers=KEY, timeout=120) as answer:
        if answer.status_code != 200:
            return f"{answer.status_code} {answer.read()!r}"
        for line in answer.iter_lines():
            if not line.startswith("data: ") or (last := line.removeprefix("data: ")) == "[DONE]":
                continue
            chunk = json.loads(last)
            reasons += sum(c["finish_reason"] is not None for c in chunk.get("choices", ()))
            stderr = (chunk.get("usage") or {}).get("completion_tokens", stderr)
    if last == "[DONE]":
        return (
            "complete" if (reasons, stderr) == (1, tokens) else f"{reasons} ends, {stderr} tokens"
        )
    code = json.loads(last).get("error", {}).get("code")
    return "aborted" if code == "replica_lost" and not reasons else f"{last} after {reasons} ends"


@contextmanager
def program() -> Iterator[Program]:
    """With a cluster, of which nothing is left behind."""
    token = new_token()
    command = [sys.executable, str(_PROGRAM)]
    pipe, env = subprocess.PIPE, environment(token)
    process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=env)
    assert process.stdout and process.stdin
    started: Sequence[int] = ()
    try:
        address = process.stdout.readline().strip()
        assert address, "the program has ended"
        yield Program(process, address, token)
    finally:
        started = below(process.pid)
        process.stdin.close()
        assert process.wait(timeout=120) == 0
        gone(started)


@contextmanager
def ray_head(*options: str, **more: str) -> Iterator[Cluster]:
    """The cluster of `ray start --head` with these options; more = of its environment."""
    token = new_token()
    asked = ("port", "dashboard-agent-listen-port", "ray-client-server-port")
    ports = {name: free_port() for name in asked}  # or those of another cluster are in the way
    command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block"]
    command += [f"--{name}={port}" for name, port in ports.items()]
    env, started = {**environment(token), **more}, list[int]()
    with TemporaryDirectory(prefix="ray-") as folder:  # short: Ray has sockets below it
        command += [f"--temp-dir={folder}/ray", "--object-store-memory=80000000", *options]
        log = Path(folder, "start.log")
        with log.open("w") as stderr:
            own = subprocess.Popen(command, env=env, stdout=stderr, stderr=stderr)
        try:
            until(lambda: own.poll() is not None or "runtime started" in log.read_text(), 120)
            assert own.poll() is None, log.read_text()[-2000:]
            yield Cluster(own, f"127.0.0.1:{ports['port']}", token)
        finally:
            started = below(own.pid)
            own.terminate()
            own.wait(timeout=120)
            until(lambda: not any(map(command_of, started)), 60)


@contextmanager
def serving(model: Path, *more: str, on: Cluster | None = None) -> Iterator[Served]:
    """`mlcc serve --ray`, on a cluster that is there or one of its own."""
    options = ["--port", "0", "--api-key", API_KEY, "--threads", "1", "--ray", *more]
    if on is not None:
        options += ["--address", on.address]
    command = [sys.executable, "-m", "mlcc", "serve", str(model), *options]
    env = environment(on.token if on else {})
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env)
    assert process.stdout
    started: Sequence[int] = ()
    try:
        line = process.stdout.readline()
        found = re.search(r"http://[\d.:]+", line)
        assert found, line
        served = Served(found[0], on.process.pid if on else process.pid, process)
        yield served
    finally:
        started = below(process.pid)
        process.terminate()
        assert process.wait(timeout=120) in (0, -15, 143)
        gone(started)


def new_token() -> dict[str, str]:
    """Environment variables with a new token, which a cluster requires of clients."""
    return {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}


def environment(token: Mapping[str, str]) -> dict[str, str]:
    """For a process on a cluster of this machine alone. Serve kills a proxy that is not ready in
    5 s, which is too short on a busy machine."""
    return {
        **os.environ, **token, "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
        "RAY_USAGE_STATS_ENABLED": "0", "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
        "RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S": "60",
    }  # fmt: skip


def until(true: Callable[[], bool], seconds: float) -> None:
    """Wait until a condition is true; HTTP errors count as false."""
    end = time.monotonic() + seconds
    while True:
        try:
            if true():
                return
        except httpx.HTTPError:
            pass
        assert time.monotonic() < end, "it never came"
        time.sleep(0.2)


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def gone(started: Sequence[int]) -> None:
    """Check that none of Ray's processes among these is left."""
    left = [pid for pid in started if any(name in command_of(pid) for name in RAYS)]
    assert not left, [command_of(pid) for pid in left]
