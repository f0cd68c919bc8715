"""Replicas on a real Ray, beside the same engines without Ray and beside the simulator.

    python -m benchmarks.scale.ray_routing [--replicas 3] [--step-ms 10] [--streams 24]
        [--requests 240]

The model is a toy (tests/helpers/toy/toy_model.py) whose steps take `--step-ms`, so two cores
suffice for several replicas. Prints one JSON line: tokens a second of `--streams` concurrent
requests with Ray and without; the latency of a one-token request (p50, ms) with Ray, without, and
of an empty Ray Serve call; and the prefix cache's hit rate on a trace of shared prompts, here and
in the simulator with caches of the same size.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import sys
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from functools import partial
from statistics import median
from typing import Any

os.environ["PYTHONPATH"] = os.pathsep.join(sys.path)

from benchmarks.scale.routing import simulate
from benchmarks.scale.simulator import BLOCK, Job
from mlcc.engine.request import Request, SamplingParams
from mlcc.scale.fleet import Prompt
from mlcc.scale.messages import ReplicaCall, ReplyBatch
from mlcc.scale.options import Scale
from mlcc.scale.replica import Replica
from mlcc.scale.routed_engine import RoutedEngine
from mlcc.scale.serving import RayEngine
from mlcc.server.asgi import Settings
from tests.helpers.toy.toy_model import CAPACITY, open_toy

KINDS, SHARED, OWN, ANSWER = 18, 256, 24, 8
"""The trace: number of shared prompts, their tokens, tokens of a question and of an answer."""


class LocalReplicas:
    """Replicas in this process, called in turn, without Ray and router."""

    def __init__(self, replicas: Sequence[Replica]) -> None:
        self._replicas, self._next = replicas, 0

    async def call(self, call: ReplicaCall) -> AsyncIterator[ReplyBatch]:
        self._next += 1
        async for piece in self._replicas[self._next % len(self._replicas)].generate(call):
            yield piece

    def stats(self) -> Mapping[str, Mapping[str, float]]:
        return {}


async def call(client: RoutedEngine, name: str, prompt: Sequence[int], tokens: int) -> int:
    """Answer one request. Returns the number of cached prompt tokens."""
    params = SamplingParams(temperature=0, max_tokens=tokens, ignore_eos=True)
    job = client.submit([Request(name, prompt, params)], None)
    try:
        return (await job.answers())[0].finished.cached_tokens
    finally:
        job.close()


async def rate(client: RoutedEngine, streams: int, tokens: int = 100) -> float:
    """Tokens a second of `streams` concurrent requests without common prefixes."""
    prompts = [[1 + n % 90, 1 + n // 90 % 90, 7, 8] for n in range(streams)]
    start = time.perf_counter()
    await asyncio.gather(*(call(client, f"s{start}{n}", p, tokens) for n, p in enumerate(prompts)))
    return streams * tokens / (time.perf_counter() - start)


async def latency(client: RoutedEngine, count: int = 60) -> float:
    """Median ms of sequential one-token requests."""
    times = []
    for n in range(count):
        start = time.perf_counter()
        await call(client, f"a{start}", [3, 4, 1 + n], 1)
        times.append((time.perf_counter() - start) * 1e3)
    return median(times[count // 4 :])


async def bare_call(count: int = 60) -> float:
    """Median ms of a round trip through Ray Serve: a stream of one item, refused before the
    engine."""
    from ray import serve  # after `RayEngine` has configured Ray

    from mlcc.scale.deployments import ENGINE

    (app,) = serve.status().applications
    handle: Any = serve.get_deployment_handle(ENGINE, app).options(stream=True)
    refused, times = ReplicaCall(Request("n", [1]), "another artifact", Prompt(1)), []
    for _ in range(count):
        start = time.perf_counter()
        async for _ in handle.generate.remote(refused):
            pass
        times.append((time.perf_counter() - start) * 1e3)
    return median(times[count // 4 :])


def trace(requests: int) -> list[tuple[int, list[int]]]:
    """(kind, tokens) of each request; the frequencies of the prompts are Zipf's."""
    rng = random.Random(4)
    heads = [[rng.randrange(1, 90) for _ in range(SHARED)] for _ in range(KINDS)]
    weights = [1 / (1 + k) ** 0.8 for k in range(KINDS)]
    kinds = rng.choices(range(KINDS), weights, k=requests)
    return [(k, [*heads[k], *(rng.randrange(1, 90) for _ in range(OWN))]) for k in kinds]


async def hit_rate(client: RoutedEngine, requests: int, gap_s: float) -> float:
    """The hit rate on the trace, with a request every `gap_s`."""
    tasks: list[asyncio.Task[int]] = []
    requested = trace(requests)
    for n, (_, prompt) in enumerate(requested):
        tasks.append(asyncio.ensure_future(call(client, f"h{n}", prompt, ANSWER)))
        await asyncio.sleep(gap_s)
    return sum(await asyncio.gather(*tasks)) / sum(len(prompt) for _, prompt in requested)


def simulated(requests: int, replicas: int, gap_s: float) -> float:
    """The hit rate in the simulator, with caches of the same size."""
    jobs = []
    for n, (_, prompt) in enumerate(trace(requests)):
        whole = range(BLOCK, len(prompt) + 1, BLOCK)
        chain = [hash(tuple(prompt[:end])) for end in whole]
        jobs.append(Job(n * gap_s, len(prompt), chain, ANSWER))
    max_running = CAPACITY.max_batch
    blocks = CAPACITY.pools[0]
    return float(simulate("mlcc", jobs, replicas, 0, blocks, max_running)["hit_rate"])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--replicas", type=int, default=3)
    parser.add_argument("--step-ms", type=float, default=10)
    parser.add_argument("--streams", type=int, default=24)
    parser.add_argument("--requests", type=int, default=240)
    parser.add_argument("--gap-ms", type=float, default=80)
    args = parser.parse_args()
    opener = partial(open_toy, args.step_ms / 1e3)
    gap_s = args.gap_ms / 1e3
    results: dict[str, Any] = {"load": os.getloadavg()[0]}
    local = [Replica(opener, "", 256) for _ in range(args.replicas)]

    async def without_ray() -> None:
        client = RoutedEngine(LocalReplicas(local), CAPACITY, "", 1000)
        results["alone_ms"] = await latency(client)
        results["tokens_s"] = max([await rate(client, args.streams) for _ in range(3)])

    asyncio.run(without_ray())
    for replica in local:
        replica.close()
    engine = RayEngine(opener, Settings(max_queue=256), "", Scale(args.replicas))

    async def with_ray() -> None:
        results["ray_call_ms"] = await bare_call()
        results["ray_alone_ms"] = await latency(engine.client)
        results["ray_tokens_s"] = max([await rate(engine.client, args.streams) for _ in range(3)])
        results["hit_rate"] = await hit_rate(engine.client, args.requests, gap_s)

    asyncio.run(with_ray())
    engine.close()
    results["simulated_hit_rate"] = simulated(args.requests, args.replicas, gap_s)
    print(json.dumps({name: round(value, 4) for name, value in results.items()}))


if __name__ == "__main__":
    main()
