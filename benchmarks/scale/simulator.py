"""Engines that only count time: what `routing.py` sends its traces to. No model and no Ray.

An engine is a loop of steps, as mlcc's is: a step computes a chunk of the oldest prompts and a
token of every answer, and takes `STEP_S`, a little for each answer, and the chunk's tokens by
`PREFILL` a second. Its prefix cache is blocks in the order of their last use; a prompt is the chain
of its blocks' hashes, so that a beginning is one number, as in
`mlcc.engine.kv_cache.prefix_digest`.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import count

from mlcc.engine.kv_cache.prefix_digest import is_sampled_depth
from mlcc.scale.routing import EngineStatus, Prompt

BLOCK = 16
STEP_S, PER_ANSWER_S = 0.012, 0.0001
PREFILL = 16_000.0
"""Tokens a second: with the step above about an 8B model on a GPU of the middle class."""
CHUNK = 512
TOLD_S = 1.0


@dataclass(eq=False)
class Job:
    """A request. `chain`: the hash of each beginning that is whole blocks."""

    at: float
    tokens: int
    chain: Sequence[int]
    answer: int
    """Tokens."""
    session: str = ""
    then: Callable[[float], Iterable[Job]] = field(default=lambda now: ())
    """What follows its end."""
    hit: int = 0
    left: int = 0
    said: int = 0
    first: float = 0.0
    engine: str = ""
    handed: bool = False
    """Its prompt was computed elsewhere."""

    @property
    def prompt(self) -> Prompt:
        told = [(d * BLOCK, h) for d, h in enumerate(self.chain, 1) if is_sampled_depth(d)]
        return Prompt(self.tokens, told)


class SimulatedEngine:
    """One. `blocks`: what its prefix cache holds."""

    def __init__(self, name: str, blocks: int, room: int = 48) -> None:
        self.name, self.blocks, self.room = name, blocks, room
        self.waiting: deque[Job] = deque()
        self.running: list[Job] = []
        self.cache: OrderedDict[int, int] = OrderedDict()
        """Hash -> depth, the longest unused first."""
        self._snapshot: set[int] = set()
        """Those of them that are told."""
        self.stepping = False
        self.prompt_tokens = self.hit_tokens = self.answered = 0

    @property
    def live(self) -> int:
        return len(self.waiting) + len(self.running)

    def told(self) -> EngineStatus:
        return EngineStatus(set(self._snapshot), self.live, self.room)

    def take(self, job: Job) -> None:
        job.engine = self.name
        self.waiting.append(job)

    def step(self) -> tuple[float, list[Job], list[Job]]:
        """Seconds, who says a token in it, and whose prompt ends in it."""
        self._admit()
        decoding, left, ended = [j for j in self.running if not j.left], CHUNK, []
        for job in self.running:
            if job.left and left:
                took = min(left, job.left)
                job.left, left = job.left - took, left - took
                if not job.left:
                    ended.append(job)
        seconds = STEP_S + PER_ANSWER_S * len(decoding) + (CHUNK - left) / PREFILL
        return seconds, decoding, ended

    def remember(self, chain: Sequence[int]) -> None:
        """From the last block to the first: a branch dies from its leaves on."""
        for depth in range(len(chain), 0, -1):
            told = chain[depth - 1]
            if told not in self.cache and is_sampled_depth(depth):
                self._snapshot.add(told)
            self.cache[told] = depth
            self.cache.move_to_end(told)
        while len(self.cache) > self.blocks:
            self._snapshot.discard(self.cache.popitem(last=False)[0])

    def _admit(self) -> None:
        while self.waiting and len(self.running) < self.room:
            job = self.waiting.popleft()
            if job.handed:
                self.running.append(job)
                continue
            depth = 0
            for told in job.chain[: (job.tokens - 1) // BLOCK]:
                if told not in self.cache:
                    break
                depth += 1
            job.hit = depth * BLOCK
            job.left = job.tokens - job.hit
            self.prompt_tokens += job.tokens
            self.hit_tokens += job.hit
            self.running.append(job)


class Simulation:
    """Runs jobs to their end. `choose` names the engine for a job; `tell` hears what engines tell,
    once in TOLD_S; `ended` hears of each job's end; `hand` may send a computed prompt elsewhere."""

    def __init__(
        self,
        engines: Sequence[SimulatedEngine],
        choose: Callable[[Job, float], str],
        tell: Callable[[str, EngineStatus, float], None] | None = None,
        ended: Callable[[Job], None] = lambda job: None,
        hand: Callable[[Job, float], tuple[str, float] | None] = lambda job, now: None,
    ) -> None:
        self.engines = {engine.name: engine for engine in engines}
        self._choose, self._tell, self._ended, self._hand = choose, tell, ended, hand
        self._heap: list[tuple[float, int, Callable[[float], None]]] = []
        self._number = count()
        self._left = 0
        self.done: list[tuple[Job, float]] = []
        """Each with the time of its end."""
        self.spread: list[float] = []
        """Most live requests of an engine by their mean, at each telling."""

    def run(self, jobs: Iterable[Job]) -> None:
        for job in jobs:
            self._arrive(job)
        self._later(TOLD_S, self._tell_all)
        while self._heap and self._left:
            now, _, what = heapq.heappop(self._heap)
            what(now)

    def _arrive(self, job: Job) -> None:
        self._left += 1
        self._later(job.at, lambda now: self._send(job, self._choose(job, now), now))

    def _send(self, job: Job, name: str, now: float) -> None:
        engine = self.engines[name]
        engine.take(job)
        self._wake(engine, now)

    def _wake(self, engine: SimulatedEngine, now: float) -> None:
        if engine.stepping or not engine.live:
            return
        engine.stepping = True
        seconds, decoding, computed = engine.step()
        self._later(now + seconds, lambda end: self._commit(engine, decoding, computed, end))

    def _commit(
        self, engine: SimulatedEngine, decoding: list[Job], computed: list[Job], now: float
    ) -> None:
        engine.stepping = False
        for job in computed:
            engine.remember(job.chain)
            job.first, job.said = now, 1
            if (other := self._hand(job, now)) is not None:
                engine.running.remove(job)
                job.handed = True
                self._later(other[1], lambda t, j=job, n=other[0]: self._send(j, n, t))
        for job in decoding:
            job.said += 1
            if job.said >= job.answer:
                self._end(engine, job, now)
        self._wake(engine, now)

    def _end(self, engine: SimulatedEngine, job: Job, now: float) -> None:
        engine.running.remove(job)
        engine.answered += 1
        self.done.append((job, now))
        self._left -= 1
        self._ended(job)
        for more in job.then(now):
            self._arrive(more)

    def _tell_all(self, now: float) -> None:
        lives = [engine.live for engine in self.engines.values()]
        if sum(lives):
            self.spread.append(max(lives) * len(lives) / sum(lives))
        if self._tell is not None:
            for engine in self.engines.values():
                self._tell(engine.name, engine.told(), now)
        self._later(now + TOLD_S, self._tell_all)

    def _later(self, at: float, what: Callable[[float], None]) -> None:
        heapq.heappush(self._heap, (at, next(self._number), what))
