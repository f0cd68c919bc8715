"""Two replicas of the demo on Ray: `mlcc serve --ray` answers every protocol, routes prompts with
equal prefixes to one replica, and survives the loss of a replica. After its end, another
application uses the same Ray Serve, and is upgraded under load.

All on one cluster, that of `ray_program.py`; `--long` has one that the command starts.
"""

from __future__ import annotations

import os
import re
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path
from threading import Event

import httpx
import pytest

from tests.e2e.conformance.conftest import API_KEY, running
from tests.e2e.conformance.runner import Runner
from tests.e2e.conformance.vectors import Vector, load
from tests.runtime.scale.ray_cluster import (
    KEY,
    Program,
    Served,
    body,
    free_port,
    program,
    serving,
    stream,
    until,
)

pytest.importorskip("ray", reason="needs ray: pip install mlcc[ray]")
REPLICAS, TOKENS = 2, 40
UNSUPPORTED = {"cancel/running-while-streaming"}
TOPICS = {"answers", "streaming", "cancel", "structured", "tools", "logprobs", "batching"}
"""Topics of vectors that depend on Ray, for the ordinary run; the server's own tests have the
rest."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Program]:
    with program() as started:
        yield started


@pytest.fixture(scope="module")
def port() -> int:
    """The port of Serve's proxies, which keep their first one while Serve runs."""
    return free_port()


@pytest.fixture(scope="module")
def served(cluster: Program, compiled_demo: Callable[[str, str], Path]) -> Iterator[Served]:
    model = compiled_demo("f32", "cpu")
    with serving(model, "--replicas", str(REPLICAS), on=cluster) as started:
        yield started


@pytest.fixture(scope="module")
def runner(request: pytest.FixtureRequest, served: Served) -> Iterator[Runner]:
    with running(request, served.url) as started:
        yield started


def shown() -> Iterator[object]:
    """A vector of each of `TOPICS`; with --long, all except those that need current counters:
    replicas report theirs once a second."""
    left = set(TOPICS)
    for vector in load():
        if vector.fits("server") and vector.id not in UNSUPPORTED:
            marks = [] if vector.topic in left else [pytest.mark.long]
            left.discard(vector.topic)
            yield pytest.param(vector, id=vector.id, marks=marks)


@pytest.mark.feature("ray", "cpu", "runs")
@pytest.mark.parametrize("vector", shown())
def test_conformance(runner: Runner, vector: Vector) -> None:
    runner.result(vector)


@pytest.mark.feature("ray", "cpu", "runs")
def test_prompts_that_begin_alike_go_together(served: Served) -> None:
    """With two replicas, all prompts with one of four long prefixes find it cached, except the
    first of each."""
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
    metrics = served.metrics()
    sent = re.findall(r"mlcc_engine_routed_requests_total\{[^}]*\} (\d+)", metrics)
    assert sum(map(int, sent)) > 0
    assert re.search(r'mlcc_engine_retried_requests_total\{model="[^"]+",replica=""\} \d', metrics)


def test_a_replica_is_killed_while_all_stream(served: Served) -> None:
    """Each of 72 streams is complete, or ends after its start with a typed error; then there are
    two replicas again. (benchmarks/scale/replica_kills.py has thousands, and compares their
    tokens.)"""
    before = served.replicas()
    assert len(before) == REPLICAS
    with ThreadPoolExecutor(24) as pool:
        streams = [
            pool.submit(stream, served, f"{number} and {number}?", TOKENS) for number in range(72)
        ]
        first(streams, 12)
        os.kill(before[0], signal.SIGKILL)
        ends = Counter(future.result() for future in streams)
    assert set(ends) <= {"complete", "aborted"} and ends.total() == 72, ends
    assert ends["complete"] >= 72 - 24, ends
    assert served.chat("And now?")["choices"]
    until(lambda: len({*served.replicas()} - {before[0]}) == REPLICAS, 90)


def first(streams: list[Future[str]], count: int) -> None:
    """Wait until so many have ended."""
    while sum(future.done() for future in streams) < count:
        wait([future for future in streams if not future.done()], return_when=FIRST_COMPLETED)


@pytest.mark.long
@pytest.mark.feature("ray", "cpu", "runs")
def test_prefill_and_decode_apart(
    served: Served, compiled_demo: Callable[[str, str], Path]
) -> None:
    """On a cluster of the command's own, through Ray's object store: the text of replicas that do
    both; also if a decoding replica dies meanwhile: its requests are sent again."""
    prompts = [f"What is {n} plus {n}?" for n in range(6)]

    def texts(which: Served) -> list[object]:
        with ThreadPoolExecutor(6) as pool:
            return [a["choices"] for a in pool.map(lambda p: which.chat(p, 48), prompts)]

    expected = texts(served)
    with serving(compiled_demo("f32", "cpu"), "--replicas", "2", "--prefill", "1") as apart:
        assert texts(apart) == expected
        decoding = apart.replicas()
        assert len(decoding) == 2
        with ThreadPoolExecutor(1) as pool:
            again = pool.submit(texts, apart)
            time.sleep(0.2)
            os.kill(decoding[0], signal.SIGKILL)
            assert again.result() == expected


def test_an_application_of_ones_own_comes_after(
    cluster: Program, served: Served, port: int, compiled_demo: Callable[[str, str], Path]
) -> None:
    """`serve.run(deployment(...))` behind Serve's own proxies, under a prefix and beside another
    application: refused while `mlcc serve --ray` runs on the cluster, which starts Serve without
    proxies, and accepted after its end."""
    model, keys = str(compiled_demo("f32", "cpu")), [API_KEY]
    asked = {"model": model, "port": port, "prefix": "/llm", "keys": keys}
    assert "no request would come here" in cluster.do(**asked)
    served.end()
    until(lambda: not served.replicas(), 60)
    assert cluster.do(**asked) == ["beside", "llm"]
    url = f"http://127.0.0.1:{port}"
    assert httpx.get(f"{url}/hello", timeout=60).text == "Hello"
    own = Served(f"{url}/llm", cluster.process.pid)
    assert own.chat("Hi")["choices"]
    assert stream(own, "Hi", TOKENS) == "complete"
    refused = httpx.post(f"{own.url}/v1/chat/completions", json=body("Hi", 1), timeout=60)
    assert refused.status_code == 401
    assert cluster.do() == []


@pytest.mark.long
def test_an_upgrade_with_traffic_on(
    cluster: Program, served: Served, port: int, compiled_demo: Callable[[str, str], Path]
) -> None:
    """While the replicas of one artifact are replaced by those of another, every request is
    answered, by one of them."""
    served.end()
    models = [str(compiled_demo(quant, "cpu")) for quant in ("f32", "q8")]
    asked = {"port": port, "prefix": "/", "keys": [API_KEY], "replicas": 2}
    cluster.do(model=models[0], **asked)
    url = f"http://127.0.0.1:{port}/v1/chat/completions"
    ends, prints, over = Counter[str](), Counter[str](), Event()

    def call(number: int) -> None:
        with httpx.Client(headers=KEY, timeout=120) as client:
            while not over.is_set():
                answer = client.post(url, json=body(f"{number}?", 24))
                ends[str(answer.status_code) if answer.is_success else answer.text[:200]] += 1
                if answer.is_success:
                    prints[answer.json()["system_fingerprint"]] += 1

    with ThreadPoolExecutor(4) as pool:
        asking = [pool.submit(call, number) for number in range(4)]
        try:
            until(lambda: ends.total() >= 40, 60)
            cluster.do(model=models[1], **asked)
            until(lambda: len(prints) == 2 and min(prints.values()) >= 40, 120)
        finally:
            over.set()
        for future in asking:
            future.result()
    assert set(ends) == {"200"}, ends
    assert cluster.do() == []
