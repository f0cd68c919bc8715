"""When do prefill and decode pay to be apart? On simulated engines, and no model.

    python -m benchmarks.scale.disaggregation [--engines 8] [--seconds 20]

An engine that does both lengthens a step of all its answers by each chunk of a prompt; apart, it is
the pages' way that costs, and engines that are idle while the other kind is not. What is counted is
goodput (DistServe, Zhong et al., 2024): the most requests a second of which nine in ten have their
first token within `FIRST_S` and a second of each 4,000 tokens of their prompt, and their others at
a pace, on the average. Engines are those of `simulated_fleet.py`; the pages of a token are 128 KB
(an 8B model in float16), and go at 1 GB/s (Ray's object store over TCP) or 20 (RDMA). Of the ways
to divide the engines the best is taken. Prints a table and one JSON line.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Sequence
from typing import Any

from benchmarks.scale.simulator import PREFILL, STEP_S, Job, SimulatedEngine, Simulation
from mlcc.scale.routing import EngineStatus, Fleet

WORKLOADS = {
    "writing": (200, 800),
    "chat": (600, 200),
    "code": (2000, 400),
    "documents": (6000, 200),
    "classifying": (6000, 10),
}
"""Tokens of prompts and of answers, on the average."""
PACES = {"20 ms": 0.02, "40 ms": 0.04}
"""Chosen after a first run with others: strict ones show the effect."""
FIRST_S, FIRST_PER_TOKEN_S = 1.0, 1 / 4000
PAGE_BYTES = 128e3
LINKS = {"TCP": 1e9, "RDMA": 20e9}
RISING, STEPS = 1.12, 28
"""From one rate to the next, and how many there are."""
BLOCKS = 8192


class Fleets:
    """Some engines for prompts and some for what follows; none of the latter = all do both."""

    def __init__(self, prompts: int, decode: int, bytes_s: float) -> None:
        self.prompts = [SimulatedEngine(f"p{n}", BLOCKS) for n in range(prompts)]
        self.decode = [SimulatedEngine(f"d{n}", BLOCKS) for n in range(decode)]
        self._bytes_s = bytes_s
        self._first, self._then = Fleet(1), Fleet(2)
        self._first.set_engines([engine.name for engine in self.prompts])
        self._then.set_engines([engine.name for engine in self.decode])
        self._link: dict[str, float] = {}
        """When each engine's link has sent what is on its way."""

    def run(self, jobs: Sequence[Job]) -> list[tuple[Job, float]]:
        hand = self._hand if self.decode else lambda job, now: None
        engines = [*self.prompts, *self.decode]
        simulation = Simulation(engines, self._choose, self._tell, self._ended, hand)
        simulation.run(jobs)
        return simulation.done

    def _choose(self, job: Job, now: float) -> str:
        return self._chosen(self._first, job, now)

    def _chosen(self, fleet: Fleet, job: Job, now: float) -> str:
        choice = fleet.choose(job.prompt, now)
        assert choice is not None
        return choice.name

    def _hand(self, job: Job, now: float) -> tuple[str, float]:
        """One after another on a link."""
        self._first.ended(job.engine)
        begun = max(now, self._link.get(job.engine, 0.0))
        there = begun + job.tokens * PAGE_BYTES / self._bytes_s
        self._link[job.engine] = there
        return self._chosen(self._then, job, now), there

    def _tell(self, name: str, told: EngineStatus, now: float) -> None:
        (self._then if name.startswith("d") else self._first).update(name, told, now)

    def _ended(self, job: Job) -> None:
        (self._then if job.engine.startswith("d") else self._first).ended(job.engine)


def jobs_of(workload: str, rate: float, seconds: float) -> list[Job]:
    """Requests of which none begin alike, at random times."""
    rng, (prompt, answer) = random.Random(3), WORKLOADS[workload]
    made, now = [], 0.0
    while (now := now + rng.expovariate(rate)) < seconds:
        tokens = max(16, round(rng.gammavariate(4, prompt / 4)))
        made.append(Job(now, tokens, (), 2 + round(rng.expovariate(1 / answer))))
    return made


def kept(done: Sequence[tuple[Job, float]], pace_s: float) -> float:
    """The share of requests that were answered as was promised."""
    good = 0
    for job, end in done:
        first = job.first - job.at <= FIRST_S + job.tokens * FIRST_PER_TOKEN_S
        good += first and end - job.first <= pace_s * (job.answer - 1)
    return good / max(1, len(done))


class Trial:
    """One workload on so many engines."""

    def __init__(self, workload: str, engines: int, seconds: float) -> None:
        self.engines = engines
        self._workload, self._seconds = workload, seconds
        prompt, answer = WORKLOADS[workload]
        self._least = engines / (prompt / PREFILL + answer * STEP_S / 48) / 16
        self._kept: dict[tuple[int, float, int], list[float]] = {}

    def goodput(self, pace: str, prompts: int, bytes_s: float = 1.0) -> float:
        """The most requests a second, within `RISING`, with so many engines for prompts; all of
        them = together."""
        low, high = -1, STEPS
        while high - low > 1:
            middle = (low + high) // 2
            if self._share(prompts, bytes_s, middle)[[*PACES].index(pace)] >= 0.9:
                low = middle
            else:
                high = middle
        return self._least * RISING**low if low >= 0 else 0.0

    def _share(self, prompts: int, bytes_s: float, step: int) -> list[float]:
        """Of requests that were answered as promised, of each pace."""
        if (key := (prompts, bytes_s, step)) not in self._kept:
            jobs = jobs_of(self._workload, self._least * RISING**step, self._seconds)
            done = Fleets(prompts, self.engines - prompts, bytes_s).run(jobs)
            self._kept[key] = [kept(done, pace_s) for pace_s in PACES.values()]
        return self._kept[key]


def row(trial: Trial, pace: str) -> dict[str, Any]:
    """Together, and apart over each link, with the number of engines for prompts."""
    found: dict[str, Any] = {"together": trial.goodput(pace, trial.engines)}
    for link, bytes_s in LINKS.items():
        tried = {n: trial.goodput(pace, n, bytes_s) for n in range(1, trial.engines)}
        most = max(tried, key=lambda n: tried[n])
        found[link] = {"apart": tried[most], "prompts": most}
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--engines", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--workloads", nargs="*", default=list(WORKLOADS))
    args = parser.parse_args()
    found: dict[str, dict[str, Any]] = {}
    print("workload     pace    together   apart, TCP (prompts)   apart, RDMA (prompts)")
    for workload in args.workloads:
        trial = Trial(workload, args.engines, args.seconds)
        for pace in PACES:
            made = found.setdefault(workload, {})[pace] = row(trial, pace)
            cells = "".join(f"{made[k]['apart']:14.1f} ({made[k]['prompts']})" for k in LINKS)
            print(f"{workload:12} {pace:6} {made['together']:8.1f} {cells}", flush=True)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
