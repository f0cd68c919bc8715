"""Routing of requests to engines: mlcc's policy beside others, on simulated engines.

    python -m benchmarks.scale.routing [--engines 64] [--seconds 60] [--seed 0]
        [--traces chat agents shared]
    python -m benchmarks.scale.routing --decision 1000    # time of one decision among 1,000

Prints a table and one JSON line: time to first token (p50, p99, ms), the share of prompt tokens
found in prefix caches, and imbalance (the most requests on an engine over the mean, averaged).
`Ray's prefix rule` is ray.serve.llm's PrefixCacheAffinityRouter (2.60), written again from its
source: the longest match while queue lengths differ by at most 10, the engine with the least text
if the match is below a tenth, else the less loaded of two. Every policy knows its own requests
exactly; engines report their status once a second. `hash` of strings is random, so the script
restarts itself with PYTHONHASHSEED=0.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any, Protocol

from benchmarks.scale.simulator import BLOCK, Job, SimulatedEngine, Simulation
from benchmarks.scale.traces import TRACES, shared
from mlcc.scale.fleet import EngineStatus, Fleet

CACHE_BLOCKS = 8192
"""Cache blocks of one engine: 131,072 tokens."""


class Policy(Protocol):
    """A routing policy."""

    def choose(self, job: Job, now: float) -> str: ...

    def ended(self, job: Job) -> None: ...


class RoundRobin:
    """Engines in turn."""

    def __init__(self, names: Sequence[str], seed: int) -> None:
        self._names, self._next = names, 0
        self.load: Counter[str] = Counter()

    def choose(self, job: Job, now: float) -> str:
        name = self.pick(job)
        self.load[name] += 1
        return name

    def pick(self, job: Job) -> str:
        self._next += 1
        return self._names[self._next % len(self._names)]

    def ended(self, job: Job) -> None:
        self.load[job.engine] -= 1


class LeastLoaded(RoundRobin):
    """The engine with the fewest requests; ties at random."""

    def __init__(self, names: Sequence[str], seed: int) -> None:
        super().__init__(names, seed)
        self._rng = random.Random(seed)

    def pick(self, job: Job) -> str:
        least = min(self.load[name] for name in self._names)
        return self._rng.choice([name for name in self._names if self.load[name] == least])


class RayPrefixRule(LeastLoaded):
    """Ray's rule; its tree of characters is here a tree of blocks without eviction."""

    def __init__(self, names: Sequence[str], seed: int) -> None:
        super().__init__(names, seed)
        self._tree: dict[int, set[str]] = {}
        self._size: Counter[str] = Counter()

    def pick(self, job: Job) -> str:
        name = self._select(job)
        for block in job.chain:
            holders = self._tree.setdefault(block, set())
            if name not in holders:
                holders.add(name)
                self._size[name] += BLOCK
        return name

    def _select(self, job: Job) -> str:
        loads = [self.load[name] for name in self._names]
        if max(loads) - min(loads) > 10:
            return min(self._rng.sample(self._names, 2), key=lambda name: self.load[name])
        best: set[str] = set()
        for depth, block in enumerate(job.chain, 1):
            if not (holders := self._tree.get(block)):
                break
            if depth * BLOCK >= 0.1 * job.tokens:
                best = holders
        if not best:
            smallest = min(self._size[name] for name in self._names)
            best = {name for name in self._names if self._size[name] == smallest}
        return min(sorted(best), key=lambda name: self.load[name])


class MlccPolicy:
    """`mlcc.scale.fleet`."""

    def __init__(self, names: Sequence[str], seed: int) -> None:
        self._fleet = Fleet(seed)
        self._fleet.set_engines(names)

    def choose(self, job: Job, now: float) -> str:
        choice = self._fleet.choose(job.prompt, now)
        assert choice is not None
        return choice.name

    def report(self, name: str, status: EngineStatus, now: float) -> None:
        self._fleet.update(name, status, now)

    def ended(self, job: Job) -> None:
        self._fleet.ended(job.engine)


POLICIES: dict[str, type[RoundRobin] | type[MlccPolicy]] = {
    "round robin": RoundRobin,
    "least loaded": LeastLoaded,
    "Ray's prefix rule": RayPrefixRule,
    "mlcc": MlccPolicy,
}


def simulate(
    policy: str,
    jobs: list[Job],
    engines: int,
    seed: int,
    blocks: int = CACHE_BLOCKS,
    max_running: int = 48,
) -> dict[str, Any]:
    """Results of one policy on one trace."""
    made = [SimulatedEngine(f"e{n}", blocks, max_running) for n in range(engines)]
    router: Policy = POLICIES[policy]([engine.name for engine in made], seed)
    report = router.report if isinstance(router, MlccPolicy) else None
    simulation = Simulation(made, router.choose, report, router.ended)
    simulation.run(jobs)
    ttfts = sorted((job.first - job.at) * 1e3 for job, _ in simulation.done)
    tokens = sum(engine.prompt_tokens for engine in made)
    return {
        "requests": len(ttfts),
        "ttft_p50_ms": round(ttfts[len(ttfts) // 2], 1),
        "ttft_p99_ms": round(ttfts[int(len(ttfts) * 0.99)], 1),
        "hit_rate": round(sum(engine.hit_tokens for engine in made) / tokens, 4),
        "imbalance": round(sum(simulation.imbalance) / max(1, len(simulation.imbalance)), 2),
    }


def decision(engines: int, decisions: int = 4000) -> dict[str, float]:
    """CPU time of `choose` and `update` in ms, with caches full of the requested prefixes."""
    fleet, rng = Fleet(0), random.Random(0)
    names = [f"e{n}" for n in range(engines)]
    fleet.set_engines(names)
    jobs = shared(500.0, decisions / 500, 0, kinds=4096)
    digests = [
        {block for job in rng.sample(jobs, 64) for _, block in job.prompt.beginnings} for _ in names
    ]
    updates = []
    for name, digest in zip(names, digests, strict=True):
        start = time.thread_time()
        fleet.update(name, EngineStatus(digest, rng.randrange(30), 48), 0.0)
        updates.append((time.thread_time() - start) * 1e3)
    times = []
    for job in jobs:
        prompt = job.prompt
        start = time.thread_time()
        choice = fleet.choose(prompt, job.at)
        times.append((time.thread_time() - start) * 1e3)
        if choice is not None and rng.random() < 0.9:
            fleet.ended(choice.name)
    times.sort()
    updates.sort()
    return {
        "engines": engines,
        "p50_ms": round(times[len(times) // 2], 4),
        "p99_ms": round(times[int(len(times) * 0.99)], 4),
        "hear_p50_ms": round(updates[len(updates) // 2], 4),
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--engines", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--traces", nargs="*", default=list(TRACES))
    parser.add_argument("--decision", type=int, metavar="ENGINES")
    args = parser.parse_args()
    if args.decision:
        print(json.dumps(decision(args.decision)))
        return
    results: dict[str, dict[str, Any]] = {}
    print("trace    way                 TTFT p50 / p99, ms    hit rate   imbalance")
    for trace in args.traces:
        make, rate = TRACES[trace]
        for policy in POLICIES:
            jobs = make(rate * args.engines / 64, args.seconds, args.seed)
            row = simulate(policy, jobs, args.engines, args.seed)
            results.setdefault(trace, {})[policy] = row
            times = f"{row['ttft_p50_ms']:8.0f} / {row['ttft_p99_ms']:8.0f}"
            rest = f"{row['hit_rate']:9.1%} {row['imbalance']:10.2f}"
            print(f"{trace:8} {policy:18} {times} {rest}", flush=True)
    print(json.dumps(results))


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, "-m", "benchmarks.scale.routing", *sys.argv[1:]])
    main()
