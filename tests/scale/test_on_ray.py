"""`mlcc serve --ray`, with two replicas of the demo on a cluster of its own: every protocol as
ever, prompts that begin alike together, and a replica that is killed."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from conformance.conftest import API_KEY, running
from conformance.runner import Runner
from conformance.vectors import Vector, load
from ray_processes import RAYS, below, command_of, replicas_below

pytest.importorskip("ray")
KEY = {"Authorization": f"Bearer {API_KEY}"}
REPLICAS = 2
NOT_YET_TOLD = {"cancel/running-while-streaming"}
TOPICS = {"answers", "streaming", "cancel", "structured", "tools", "logprobs", "batching"}
"""What goes through Ray, of which the ordinary run asks; the rest is the server's own."""


@dataclass(frozen=True)
class Served:
    url: str
    process: subprocess.Popen[str]

    def chat(self, text: str, tokens: int = 8) -> dict[str, object]:
        answer = httpx.post(f"{self.url}/v1/chat/completions", json=body(text, tokens),
                            headers=KEY, timeout=120)  # fmt: skip
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    def metrics(self) -> str:
        return httpx.get(f"{self.url}/metrics", headers=KEY, timeout=60).text

    def replicas(self) -> list[int]:
        """Processes of Ray's that are replicas, below ours."""
        return replicas_below(self.process.pid)


def body(text: str, tokens: int) -> dict[str, object]:
    return {
        "messages": [{"role": "user", "content": text}],
        "max_tokens": tokens, "temperature": 0, "ignore_eos": True,
    }  # fmt: skip


@pytest.fixture(scope="module")
def served(compiled_demo: Callable[[str, str], Path]) -> Iterator[Served]:
    with serving(compiled_demo("f32", "cpu"), "--replicas", str(REPLICAS)) as started:
        yield started


@contextmanager
def serving(model: Path, *more: str) -> Iterator[Served]:
    options = ["--port", "0", "--api-key", API_KEY, "--ray", *more]
    command = [sys.executable, "-m", "mlcc", "serve", str(model), "--threads", "1", *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout
    try:
        line = process.stdout.readline()
        found = re.search(r"http://[\d.:]+", line)
        assert found, line
        yield Served(found[0], process)
    finally:
        started = below(process.pid)
        process.terminate()
        assert process.wait(timeout=120) in (0, -15, 143)
        left = [pid for pid in started if any(name in command_of(pid) for name in RAYS)]
        assert not left, [command_of(pid) for pid in left]


@pytest.fixture(scope="module")
def runner(request: pytest.FixtureRequest, served: Served) -> Iterator[Runner]:
    with running(request, served.url) as started:
        yield started


def shown() -> Iterator[object]:
    """A vector of each of `TOPICS`; with --long, all but those that want counters of this moment:
    replicas tell theirs once a second."""
    left = set(TOPICS)
    for vector in load():
        if vector.fits("server") and vector.id not in NOT_YET_TOLD:
            marks = [] if vector.topic in left else [pytest.mark.long]
            left.discard(vector.topic)
            yield pytest.param(vector, id=vector.id, marks=marks)


@pytest.mark.feature("ray", "cpu", "runs")
@pytest.mark.parametrize("vector", shown())
def test_conformance(runner: Runner, vector: Vector) -> None:
    runner.result(vector)


@pytest.mark.feature("ray", "cpu", "runs")
def test_prompts_that_begin_alike_go_together(served: Served) -> None:
    """Of each of four long beginnings all but the first find it, of two replicas."""
    cached = 0
    for kind in range(4):
        for number in range(4):
            usage = served.chat(f"{'What is it? ' * 12}{kind} {number}")["usage"]
            assert isinstance(usage, dict)
            found = usage["prompt_tokens_details"]["cached_tokens"]
            cached += found >= usage["prompt_tokens"] / 2
    assert cached >= 12


def test_metrics_have_each_replica(served: Served) -> None:
    served.chat("Hello")
    end = time.monotonic() + 30
    while time.monotonic() < end:
        names = set(
            re.findall(r'mlcc_engine_pages\{model="[^"]+",replica="(\w+)"\}', served.metrics())
        )
        if len(names) == REPLICAS:
            break
        time.sleep(0.2)
    assert len(names) == REPLICAS
    sent = re.findall(r"mlcc_engine_routed_requests_total\{[^}]*\} (\d+)", served.metrics())
    assert sum(map(int, sent)) > 0


def test_a_replica_is_killed_while_all_stream(served: Served) -> None:
    """Each stream is whole, or ends with an error that has a type. Then there are two again."""

    def stream(number: int) -> tuple[int, str]:
        asked = {**body(f"{number} and {number}?", 60), "stream": True}
        place = f"{served.url}/v1/chat/completions"
        text, last = "", ""
        with httpx.stream("POST", place, json=asked, headers=KEY, timeout=120) as answer:
            if answer.status_code != 200:
                return answer.status_code, json.loads(answer.read())["error"]["code"]
            for line in answer.iter_lines():
                if line.startswith("data: "):
                    last = line.removeprefix("data: ")
                    if last != "[DONE]" and "choices" in (chunk := json.loads(last)):
                        text += chunk["choices"][0]["delta"].get("content") or ""
        ended = "[DONE]" if last == "[DONE]" else json.loads(last)["error"]["code"]
        return 200, ended

    before = served.replicas()
    assert len(before) == REPLICAS
    with ThreadPoolExecutor(24) as pool:
        streams = [pool.submit(stream, number) for number in range(24)]
        time.sleep(0.3)
        os.kill(before[0], signal.SIGKILL)
        ends = [future.result() for future in streams]
    assert {status for status, _ in ends} == {200}, ends
    assert {end for _, end in ends} <= {"[DONE]", "replica_lost"}, ends
    assert served.chat("And now?")["choices"]
    end = time.monotonic() + 90
    while len(set(served.replicas()) - {before[0]}) < REPLICAS and time.monotonic() < end:
        time.sleep(0.5)
    assert len(set(served.replicas()) - {before[0]}) == REPLICAS


@pytest.mark.long
@pytest.mark.feature("ray", "cpu", "runs")
def test_prefill_and_decode_apart(
    served: Served, compiled_demo: Callable[[str, str], Path]
) -> None:
    """Through Ray's object store, the text of replicas that do both; also behind a decoding replica
    that dies meanwhile, which nobody sees."""
    prompts = [f"What is {n} plus {n}?" for n in range(6)]

    def texts(which: Served) -> list[object]:
        with ThreadPoolExecutor(6) as pool:
            return [a["choices"] for a in pool.map(lambda p: which.chat(p, 48), prompts)]

    expected = texts(served)
    with serving(compiled_demo("f32", "cpu"), "--replicas", "2", "--prefill", "1") as apart:
        assert texts(apart) == expected
        decoding = [pid for pid in apart.replicas() if b"mlcc-engine" in command_of(pid)]
        assert len(decoding) == 2
        with ThreadPoolExecutor(1) as pool:
            again = pool.submit(texts, apart)
            time.sleep(0.2)
            os.kill(decoding[0], signal.SIGKILL)
            assert again.result() == expected
