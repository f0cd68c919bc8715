"""Simulated engines and their event loop: a step costs time, nothing is computed. No model, no Ray.

An engine is a loop of steps, as mlcc's is: a step computes a chunk of the oldest prompts and one
token of every running answer. It takes `STEP_S`, `PER_ANSWER_S` for each answer, and the chunk's
tokens at `PREFILL` tokens a second. The prefix cache is an LRU of blocks; a prompt is the chain of
its block hashes, as in `mlcc.engine.kv_cache.prefix_digest`.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import count

from mlcc.engine.kv_cache.prefix_digest import is_sampled_depth
from mlcc.scale.fleet import EngineStatus, Prompt

BLOCK = 16
STEP_S, PER_ANSWER_S = 0.012, 0.0001
PREFILL = 16_000.0
"""Tokens a second; with `STEP_S`, about an 8B model on a mid-range GPU."""
CHUNK = 512
REPORT_S = 1.0
"""Seconds between two status reports of an engine."""


@dataclass(eq=False)
class Job:
    """A request. `chain`: the hash of each prefix of whole blocks."""

    at: float
    tokens: int
    chain: Sequence[int]
    answer: int
    """Tokens of the answer."""
    session: str = ""
    then: Callable[[float], Iterable[Job]] = field(default=lambda now: ())
    """The jobs that follow its end, such as the next turn of a chat."""
    hit: int = 0
    left: int = 0
    generated: int = 0
    first: float = 0.0
    engine: str = ""
    prefilled: bool = False
    """Whether another engine computed its prompt."""

    @property
    def prompt(self) -> Prompt:
        prefixes = [(d * BLOCK, h) for d, h in enumerate(self.chain, 1) if is_sampled_depth(d)]
        return Prompt(self.tokens, prefixes)


class SimulatedEngine:
    """One engine. `blocks`: the size of its prefix cache; `max_running`: of its batch."""

    def __init__(self, name: str, blocks: int, max_running: int = 48) -> None:
        self.name, self.blocks, self.max_running = name, blocks, max_running
        self.waiting: deque[Job] = deque()
        self.running: list[Job] = []
        self.cache: OrderedDict[int, int] = OrderedDict()
        """Hash -> depth, least recently used first."""
        self._snapshot: set[int] = set()
        """The hashes of `cache` that status reports contain."""
        self.stepping = False
        self.prompt_tokens = self.hit_tokens = self.answered = 0

    @property
    def load(self) -> int:
        return len(self.waiting) + len(self.running)

    def status(self) -> EngineStatus:
        return EngineStatus(set(self._snapshot), self.load, self.max_running)

    def take(self, job: Job) -> None:
        job.engine = self.name
        self.waiting.append(job)

    def step(self) -> tuple[float, list[Job], list[Job]]:
        """(seconds, jobs that decode a token, jobs whose prompt is complete) of the next step."""
        self._admit()
        decoding, left, ended = [j for j in self.running if not j.left], CHUNK, []
        for job in self.running:
            if job.left and left:
                chunk = min(left, job.left)
                job.left, left = job.left - chunk, left - chunk
                if not job.left:
                    ended.append(job)
        seconds = STEP_S + PER_ANSWER_S * len(decoding) + (CHUNK - left) / PREFILL
        return seconds, decoding, ended

    def cache_prompt(self, chain: Sequence[int]) -> None:
        """Insert from the last block to the first, so that a branch is evicted from its leaves."""
        for depth in range(len(chain), 0, -1):
            block = chain[depth - 1]
            if block not in self.cache and is_sampled_depth(depth):
                self._snapshot.add(block)
            self.cache[block] = depth
            self.cache.move_to_end(block)
        while len(self.cache) > self.blocks:
            self._snapshot.discard(self.cache.popitem(last=False)[0])

    def _admit(self) -> None:
        while self.waiting and len(self.running) < self.max_running:
            job = self.waiting.popleft()
            if job.prefilled:
                self.running.append(job)
                continue
            depth = 0
            for block in job.chain[: (job.tokens - 1) // BLOCK]:
                if block not in self.cache:
                    break
                depth += 1
            job.hit = depth * BLOCK
            job.left = job.tokens - job.hit
            self.prompt_tokens += job.tokens
            self.hit_tokens += job.hit
            self.running.append(job)


class Simulation:
    """Runs jobs to their end. `choose` names the engine for a job; `report` receives every engine's
    status each `REPORT_S`; `ended` is called at each job's end; `migrate` may move a prefilled job
    to another engine: (its name, the time of arrival)."""

    def __init__(
        self,
        engines: Sequence[SimulatedEngine],
        choose: Callable[[Job, float], str],
        report: Callable[[str, EngineStatus, float], None] | None = None,
        ended: Callable[[Job], None] = lambda job: None,
        migrate: Callable[[Job, float], tuple[str, float] | None] = lambda job, now: None,
    ) -> None:
        self.engines = {engine.name: engine for engine in engines}
        self._choose, self._report, self._ended, self._migrate = choose, report, ended, migrate
        self._heap: list[tuple[float, int, Callable[[float], None]]] = []
        self._number = count()
        self._left = 0
        self.done: list[tuple[Job, float]] = []
        """Jobs with the time of their end."""
        self.imbalance: list[float] = []
        """The largest number of requests on an engine over the mean, at each report."""

    def run(self, jobs: Iterable[Job]) -> None:
        for job in jobs:
            self._arrive(job)
        self._schedule(REPORT_S, self._report_all)
        while self._heap and self._left:
            now, _, action = heapq.heappop(self._heap)
            action(now)

    def _arrive(self, job: Job) -> None:
        self._left += 1
        self._schedule(job.at, lambda now: self._send(job, self._choose(job, now), now))

    def _send(self, job: Job, name: str, now: float) -> None:
        engine = self.engines[name]
        engine.take(job)
        self._wake(engine, now)

    def _wake(self, engine: SimulatedEngine, now: float) -> None:
        if engine.stepping or not engine.load:
            return
        engine.stepping = True
        seconds, decoding, computed = engine.step()
        self._schedule(now + seconds, lambda end: self._commit(engine, decoding, computed, end))

    def _commit(
        self, engine: SimulatedEngine, decoding: list[Job], computed: list[Job], now: float
    ) -> None:
        engine.stepping = False
        for job in computed:
            engine.cache_prompt(job.chain)
            job.first, job.generated = now, 1
            if (target := self._migrate(job, now)) is not None:
                engine.running.remove(job)
                job.prefilled = True
                self._schedule(target[1], lambda t, j=job, n=target[0]: self._send(j, n, t))
        for job in decoding:
            job.generated += 1
            if job.generated >= job.answer:
                self._end(engine, job, now)
        self._wake(engine, now)

    def _end(self, engine: SimulatedEngine, job: Job, now: float) -> None:
        engine.running.remove(job)
        engine.answered += 1
        self.done.append((job, now))
        self._left -= 1
        self._ended(job)
        for following in job.then(now):
            self._arrive(following)

    def _report_all(self, now: float) -> None:
        loads = [engine.load for engine in self.engines.values()]
        if sum(loads):
            self.imbalance.append(max(loads) * len(loads) / sum(loads))
        if self._report is not None:
            for engine in self.engines.values():
                self._report(engine.name, engine.status(), now)
        self._schedule(now + REPORT_S, self._report_all)

    def _schedule(self, at: float, action: Callable[[float], None]) -> None:
        heapq.heappush(self._heap, (at, next(self._number), action))
