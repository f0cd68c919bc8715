"""What replicas on a real Ray do, beside the same engines without it and beside the simulator.

    python -m benchmarks.scale.ray_routing [--replicas 3] [--step-ms 10] [--streams 24]
        [--requests 240]

The model is a toy (tests/helpers/toy_model.py) whose steps take `--step-ms`, so that two cores are
enough for several replicas. Prints one JSON line: tokens a second of so many streams at once, with
Ray and without; how long a request of one token takes (p50, ms), with Ray, without, and what a
bare call of Ray Serve's takes; and the share of prompts' tokens that prefix caches had of a trace
of shared prompts, here and in the simulator with the same caches.
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
from mlcc.scale.messages import ReplicaCall, ReplyBatch
from mlcc.scale.options import Scale
from mlcc.scale.replica import Replica
from mlcc.scale.routed_engine import RoutedEngine
from mlcc.scale.routing import Prompt
from mlcc.scale.serving import RayEngine
from mlcc.server.asgi import Settings
from tests.helpers.toy_model import CAPACITY, open_toy

KINDS, SHARED, OWN, ANSWER = 18, 256, 24, 8
"""Of the trace: prompts that are shared, their tokens, a question's and an answer's."""


class Beside:
    """`Replicas` in this process, one after another: what Ray and a router have no part in."""

    def __init__(self, replicas: Sequence[Replica]) -> None:
        self._replicas, self._next = replicas, 0

    async def call(self, call: ReplicaCall) -> AsyncIterator[ReplyBatch]:
        self._next += 1
        async for piece in self._replicas[self._next % len(self._replicas)].generate(call):
            yield piece

    def stats(self) -> Mapping[str, Mapping[str, float]]:
        return {}


async def call(client: RoutedEngine, name: str, prompt: Sequence[int], tokens: int) -> int:
    """Answer one request; how many tokens of its prompt were there."""
    params = SamplingParams(temperature=0, max_tokens=tokens, ignore_eos=True)
    job = client.submit([Request(name, prompt, params)], None)
    try:
        return (await job.answers())[0].finished.cached_tokens
    finally:
        job.close()


async def rate(client: RoutedEngine, streams: int, tokens: int = 100) -> float:
    """Tokens a second of so many at once, none of which begin alike."""
    prompts = [[1 + n % 90, 1 + n // 90 % 90, 7, 8] for n in range(streams)]
    began = time.perf_counter()
    await asyncio.gather(*(call(client, f"s{began}{n}", p, tokens) for n, p in enumerate(prompts)))
    return streams * tokens / (time.perf_counter() - began)


async def alone(client: RoutedEngine, count: int = 60) -> float:
    """ms of a request of one token, one after another."""
    times = []
    for n in range(count):
        began = time.perf_counter()
        await call(client, f"a{began}", [3, 4, 1 + n], 1)
        times.append((time.perf_counter() - began) * 1e3)
    return median(times[count // 4 :])


async def bare_call(count: int = 60) -> float:
    """ms of what costs nothing but Ray Serve's way there and back: a stream of one piece that is
    refused before an engine hears of it."""
    from ray import serve  # not before `RayEngine` has said how Ray is to be

    from mlcc.scale.deployments import ENGINE

    (app,) = serve.status().applications
    handle: Any = serve.get_deployment_handle(ENGINE, app).options(stream=True)
    nothing, times = ReplicaCall(Request("n", [1]), "another artifact", Prompt(1)), []
    for _ in range(count):
        began = time.perf_counter()
        async for _ in handle.generate.remote(nothing):
            pass
        times.append((time.perf_counter() - began) * 1e3)
    return median(times[count // 4 :])


def trace(requests: int) -> list[tuple[int, list[int]]]:
    """(kind, tokens) of each request: few prompts are asked often, most seldom."""
    rng = random.Random(4)
    heads = [[rng.randrange(1, 90) for _ in range(SHARED)] for _ in range(KINDS)]
    weights = [1 / (1 + k) ** 0.8 for k in range(KINDS)]
    kinds = rng.choices(range(KINDS), weights, k=requests)
    return [(k, [*heads[k], *(rng.randrange(1, 90) for _ in range(OWN))]) for k in kinds]


async def hit_rate(client: RoutedEngine, requests: int, gap_s: float) -> float:
    """Of the trace, one request after `gap_s` of the other."""
    found: list[asyncio.Task[int]] = []
    made = trace(requests)
    for n, (_, prompt) in enumerate(made):
        found.append(asyncio.ensure_future(call(client, f"h{n}", prompt, ANSWER)))
        await asyncio.sleep(gap_s)
    return sum(await asyncio.gather(*found)) / sum(len(prompt) for _, prompt in made)


def simulated(requests: int, replicas: int, gap_s: float) -> float:
    """The same of the simulator, whose caches are as large."""
    jobs = []
    for n, (_, prompt) in enumerate(trace(requests)):
        whole = range(BLOCK, len(prompt) + 1, BLOCK)
        chain = [hash(tuple(prompt[:end])) for end in whole]
        jobs.append(Job(n * gap_s, len(prompt), chain, ANSWER))
    room = CAPACITY.max_batch
    blocks = CAPACITY.pools[0]
    return float(simulate("mlcc", jobs, replicas, 0, blocks, room)["hit_rate"])


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
    found: dict[str, Any] = {"load": os.getloadavg()[0]}
    own = [Replica(opener, "", 256) for _ in range(args.replicas)]

    async def without() -> None:
        client = RoutedEngine(Beside(own), CAPACITY, "", 1000)
        found["alone_ms"] = await alone(client)
        found["tokens_s"] = max([await rate(client, args.streams) for _ in range(3)])

    asyncio.run(without())
    for replica in own:
        replica.close()
    behind = RayEngine(opener, Settings(max_queue=256), "", Scale(args.replicas))

    async def through() -> None:
        found["ray_call_ms"] = await bare_call()
        found["ray_alone_ms"] = await alone(behind.client)
        found["ray_tokens_s"] = max([await rate(behind.client, args.streams) for _ in range(3)])
        found["hit_rate"] = await hit_rate(behind.client, args.requests, gap_s)

    asyncio.run(through())
    behind.close()
    found["simulated_hit_rate"] = simulated(args.requests, args.replicas, gap_s)
    print(json.dumps({name: round(value, 4) for name, value in found.items()}))


if __name__ == "__main__":
    main()
