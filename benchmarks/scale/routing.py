"""Which engine gets a request: mlcc's way beside others', on simulated engines.

    python -m benchmarks.scale.routing [--engines 64] [--seconds 60] [--seed 0]
        [--traces chat agents shared]
    python -m benchmarks.scale.routing --decision 1000    how long a decision takes among so many

Prints a table and one JSON line: the time to the first token (p50, p99, ms), the share of prompts'
tokens that prefix caches had, and imbalance (most live requests of an engine by their mean, on the
average). `Ray's prefix rule` is ray.serve.llm's PrefixCacheAffinityRouter (2.60) re-stated from its
source: the longest match while queues differ by at most 10, the engine with the least text for a
match below a tenth, else the less loaded of two. All of them know their own requests exactly; what
engines tell, they tell once a second. `hash` of strings is random: PYTHONHASHSEED is set for it.
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
from mlcc.scale.routing import EngineStatus, Fleet

CACHE_BLOCKS = 8192
"""Of an engine: 131,072 tokens."""


class Policy(Protocol):
    """A way to choose."""

    def choose(self, job: Job, now: float) -> str: ...

    def ended(self, job: Job) -> None: ...


class RoundRobin:
    """One after another."""

    def __init__(self, names: Sequence[str], seed: int) -> None:
        self._names, self._next = names, 0
        self.live: Counter[str] = Counter()

    def choose(self, job: Job, now: float) -> str:
        name = self.pick(job)
        self.live[name] += 1
        return name

    def pick(self, job: Job) -> str:
        self._next += 1
        return self._names[self._next % len(self._names)]

    def ended(self, job: Job) -> None:
        self.live[job.engine] -= 1


class LeastLoaded(RoundRobin):
    """Of all, one with the fewest requests."""

    def __init__(self, names: Sequence[str], seed: int) -> None:
        super().__init__(names, seed)
        self._rng = random.Random(seed)

    def pick(self, job: Job) -> str:
        least = min(self.live[name] for name in self._names)
        return self._rng.choice([name for name in self._names if self.live[name] == least])


class RaysRule(LeastLoaded):
    """As the docstring says; its tree of characters is here one of blocks, which forgets none."""

    def __init__(self, names: Sequence[str], seed: int) -> None:
        super().__init__(names, seed)
        self._tree: dict[int, set[str]] = {}
        self._size: Counter[str] = Counter()

    def pick(self, job: Job) -> str:
        name = self._picked(job)
        for told in job.chain:
            holders = self._tree.setdefault(told, set())
            if name not in holders:
                holders.add(name)
                self._size[name] += BLOCK
        return name

    def _picked(self, job: Job) -> str:
        loads = [self.live[name] for name in self._names]
        if max(loads) - min(loads) > 10:
            return min(self._rng.sample(self._names, 2), key=lambda name: self.live[name])
        best: set[str] = set()
        for depth, told in enumerate(job.chain, 1):
            if not (holders := self._tree.get(told)):
                break
            if depth * BLOCK >= 0.1 * job.tokens:
                best = holders
        if not best:
            smallest = min(self._size[name] for name in self._names)
            best = {name for name in self._names if self._size[name] == smallest}
        return min(sorted(best), key=lambda name: self.live[name])


class Ours:
    """`mlcc.scale.routing`."""

    def __init__(self, names: Sequence[str], seed: int) -> None:
        self._fleet = Fleet(seed)
        self._fleet.set_engines(names)

    def choose(self, job: Job, now: float) -> str:
        choice = self._fleet.choose(job.prompt, now)
        assert choice is not None
        return choice.name

    def tell(self, name: str, told: EngineStatus, now: float) -> None:
        self._fleet.update(name, told, now)

    def ended(self, job: Job) -> None:
        self._fleet.ended(job.engine)


POLICIES: dict[str, type[RoundRobin] | type[Ours]] = {
    "round robin": RoundRobin,
    "least loaded": LeastLoaded,
    "Ray's prefix rule": RaysRule,
    "mlcc": Ours,
}


def simulate(
    policy: str,
    jobs: list[Job],
    engines: int,
    seed: int,
    blocks: int = CACHE_BLOCKS,
    room: int = 48,
) -> dict[str, Any]:
    """One way on one trace."""
    made = [SimulatedEngine(f"e{n}", blocks, room) for n in range(engines)]
    chooser: Policy = POLICIES[policy]([engine.name for engine in made], seed)
    tell = chooser.tell if isinstance(chooser, Ours) else None
    simulation = Simulation(made, chooser.choose, tell, chooser.ended)
    simulation.run(jobs)
    firsts = sorted((job.first - job.at) * 1e3 for job, _ in simulation.done)
    tokens = sum(engine.prompt_tokens for engine in made)
    return {
        "requests": len(firsts),
        "ttft_p50_ms": round(firsts[len(firsts) // 2], 1),
        "ttft_p99_ms": round(firsts[int(len(firsts) * 0.99)], 1),
        "hit_rate": round(sum(engine.hit_tokens for engine in made) / tokens, 4),
        "imbalance": round(sum(simulation.spread) / max(1, len(simulation.spread)), 2),
    }


def decision(engines: int, decisions: int = 4000) -> dict[str, float]:
    """How long `choose` and `update` take, in ms of CPU time, with caches full of what is asked."""
    fleet, rng = Fleet(0), random.Random(0)
    names = [f"e{n}" for n in range(engines)]
    fleet.set_engines(names)
    jobs = shared(500.0, decisions / 500, 0, kinds=4096)
    sketches = [
        {told for job in rng.sample(jobs, 64) for _, told in job.prompt.beginnings} for _ in names
    ]
    hears = []
    for name, told in zip(names, sketches, strict=True):
        began = time.thread_time()
        fleet.update(name, EngineStatus(told, rng.randrange(30), 48), 0.0)
        hears.append((time.thread_time() - began) * 1e3)
    times = []
    for job in jobs:
        prompt = job.prompt
        began = time.thread_time()
        choice = fleet.choose(prompt, job.at)
        times.append((time.thread_time() - began) * 1e3)
        if choice is not None and rng.random() < 0.9:
            fleet.ended(choice.name)
    times.sort()
    hears.sort()
    return {
        "engines": engines,
        "p50_ms": round(times[len(times) // 2], 4),
        "p99_ms": round(times[int(len(times) * 0.99)], 4),
        "hear_p50_ms": round(hears[len(hears) // 2], 4),
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
    found: dict[str, dict[str, Any]] = {}
    print("trace    way                 TTFT p50 / p99, ms    hit rate   imbalance")
    for trace in args.traces:
        make, rate = TRACES[trace]
        for policy in POLICIES:
            jobs = make(rate * args.engines / 64, args.seconds, args.seed)
            row = simulate(policy, jobs, args.engines, args.seed)
            found.setdefault(trace, {})[policy] = row
            times = f"{row['ttft_p50_ms']:8.0f} / {row['ttft_p99_ms']:8.0f}"
            rest = f"{row['hit_rate']:9.1%} {row['imbalance']:10.2f}"
            print(f"{trace:8} {policy:18} {times} {rest}", flush=True)
    print(json.dumps(found))


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, "-m", "benchmarks.scale.routing", *sys.argv[1:]])
    main()
