"""Disaggregated prefill: when separate engines for prefill and decode pay, simulated.

    python -m benchmarks.scale.disaggregation [--engines 8] [--seconds 20]

An engine that does both delays all its running answers by each prefill chunk. Separate engines pay
for the transfer of pages, and for engines of one kind that are idle while the other kind is busy.
The measure is goodput (DistServe, Zhong et al., 2024): the highest request rate at which 90 % of
the requests have their first token within `FIRST_S` plus a second for each 4,000 prompt tokens, and
the other tokens at a mean pace. Engines are those of `simulator.py`. The pages of a token are 128
KB (an 8B model in float16), sent at 1 GB/s (Ray's object store over TCP) or 20 (RDMA). The best
division of the engines is reported. Prints a table and one JSON line.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Sequence
from typing import Any

from benchmarks.scale.simulator import PREFILL, STEP_S, Job, SimulatedEngine, Simulation
from mlcc.scale.fleet import EngineStatus, Fleet

WORKLOADS = {
    "writing": (200, 800),
    "chat": (600, 200),
    "code": (2000, 400),
    "documents": (6000, 200),
    "classifying": (6000, 10),
}
"""Mean tokens of prompts and of answers."""
PACES = {"20 ms": 0.02, "40 ms": 0.04}
"""Seconds per output token. Chosen after a first run: strict limits show the effect."""
FIRST_S, FIRST_PER_TOKEN_S = 1.0, 1 / 4000
PAGE_BYTES = 128e3
LINKS = {"TCP": 1e9, "RDMA": 20e9}
RATE_STEP, RATE_STEPS = 1.12, 28
"""The ratio between two tried rates, and the number of rates."""
BLOCKS = 8192


class DisaggregatedFleet:
    """Engines for prefill and engines for decode; without the latter, the former do both."""

    def __init__(self, prompts: int, decode: int, bytes_s: float) -> None:
        self.prompts = [SimulatedEngine(f"p{n}", BLOCKS) for n in range(prompts)]
        self.decode = [SimulatedEngine(f"d{n}", BLOCKS) for n in range(decode)]
        self._bytes_s = bytes_s
        self._prefill_router, self._decode_router = Fleet(1), Fleet(2)
        self._prefill_router.set_engines([engine.name for engine in self.prompts])
        self._decode_router.set_engines([engine.name for engine in self.decode])
        self._link: dict[str, float] = {}
        """When each prefill engine's link is free again."""

    def run(self, jobs: Sequence[Job]) -> list[tuple[Job, float]]:
        migrate = self._migrate if self.decode else lambda job, now: None
        engines = [*self.prompts, *self.decode]
        simulation = Simulation(engines, self._choose, self._report, self._ended, migrate)
        simulation.run(jobs)
        return simulation.done

    def _choose(self, job: Job, now: float) -> str:
        return self._route(self._prefill_router, job, now)

    def _route(self, fleet: Fleet, job: Job, now: float) -> str:
        choice = fleet.choose(job.prompt, now)
        assert choice is not None
        return choice.name

    def _migrate(self, job: Job, now: float) -> tuple[str, float]:
        """Transfers of one engine are sequential."""
        self._prefill_router.ended(job.engine)
        start = max(now, self._link.get(job.engine, 0.0))
        arrival = start + job.tokens * PAGE_BYTES / self._bytes_s
        self._link[job.engine] = arrival
        return self._route(self._decode_router, job, now), arrival

    def _report(self, name: str, status: EngineStatus, now: float) -> None:
        (self._decode_router if name.startswith("d") else self._prefill_router).update(
            name, status, now
        )

    def _ended(self, job: Job) -> None:
        (self._decode_router if job.engine.startswith("d") else self._prefill_router).ended(
            job.engine
        )


def jobs_of(workload: str, rate: float, seconds: float) -> list[Job]:
    """Requests without common prefixes, at random times."""
    rng, (prompt, answer) = random.Random(3), WORKLOADS[workload]
    made, now = [], 0.0
    while (now := now + rng.expovariate(rate)) < seconds:
        tokens = max(16, round(rng.gammavariate(4, prompt / 4)))
        made.append(Job(now, tokens, (), 2 + round(rng.expovariate(1 / answer))))
    return made


def attainment(done: Sequence[tuple[Job, float]], pace_s: float) -> float:
    """The share of requests that met both limits (SLO attainment)."""
    good = 0
    for job, end in done:
        first = job.first - job.at <= FIRST_S + job.tokens * FIRST_PER_TOKEN_S
        good += first and end - job.first <= pace_s * (job.answer - 1)
    return good / max(1, len(done))


class Trial:
    """One workload on a number of engines."""

    def __init__(self, workload: str, engines: int, seconds: float) -> None:
        self.engines = engines
        self._workload, self._seconds = workload, seconds
        prompt, answer = WORKLOADS[workload]
        self._base_rate = engines / (prompt / PREFILL + answer * STEP_S / 48) / 16
        self._attainment: dict[tuple[int, float, int], list[float]] = {}

    def goodput(self, pace: str, prompts: int, bytes_s: float = 1.0) -> float:
        """The highest rate, within `RATE_STEP`, with `prompts` engines for prefill; all engines =
        not disaggregated."""
        low, high = -1, RATE_STEPS
        while high - low > 1:
            middle = (low + high) // 2
            if self._at_rate(prompts, bytes_s, middle)[[*PACES].index(pace)] >= 0.9:
                low = middle
            else:
                high = middle
        return self._base_rate * RATE_STEP**low if low >= 0 else 0.0

    def _at_rate(self, prompts: int, bytes_s: float, step: int) -> list[float]:
        """SLO attainment at one rate, for each pace."""
        if (key := (prompts, bytes_s, step)) not in self._attainment:
            jobs = jobs_of(self._workload, self._base_rate * RATE_STEP**step, self._seconds)
            done = DisaggregatedFleet(prompts, self.engines - prompts, bytes_s).run(jobs)
            self._attainment[key] = [attainment(done, pace_s) for pace_s in PACES.values()]
        return self._attainment[key]


def row(trial: Trial, pace: str) -> dict[str, Any]:
    """Goodput together, and disaggregated over each link with the number of prefill engines."""
    found: dict[str, Any] = {"together": trial.goodput(pace, trial.engines)}
    for link, bytes_s in LINKS.items():
        tried = {n: trial.goodput(pace, n, bytes_s) for n in range(1, trial.engines)}
        best = max(tried, key=lambda n: tried[n])
        found[link] = {"apart": tried[best], "prompts": best}
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
