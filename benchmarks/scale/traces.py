"""Synthetic traces for `routing.py`: who asks what, when. Made of a seed, so that each way of
routing gets the same."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence

from benchmarks.scale.simulator import BLOCK, Job


def chained(parts: Sequence[tuple[object, int]]) -> list[int]:
    """The hash of each whole block of a text: of parts, each a name and its tokens. Blocks are as
    alike as the names of all parts up to their end."""
    chain, told, done, length = [], 0, 0, 0
    for name, tokens in parts:
        length += tokens
        while (done + 1) * BLOCK <= length:
            done += 1
            told = hash((told, name, done))
            chain.append(told)
        told = hash((told, name))
    return chain


def chat(rate: float, seconds: float, seed: int) -> list[Job]:
    """Conversations of up to eight turns with one of four system prompts: each turn begins as the
    one before ended, eight seconds later."""
    rng = random.Random(seed)
    return [
        _turn(rng, at, (("system", rng.randrange(4)), 512), f"chat {n}", 80, 150, 8.0, 8)
        for n, at in enumerate(_poisson(rng, rate / 4.5, seconds))
    ]


def agents(rate: float, seconds: float, seed: int) -> list[Job]:
    """Agents of 48 kinds, each with 3,000 tokens of tools, which come back every second with 400
    tokens of a result, ten times."""
    rng = random.Random(seed)
    return [
        _turn(rng, at, (("tools", rng.randrange(48)), 3000), f"agent {n}", 400, 60, 1.0, 10)
        for n, at in enumerate(_poisson(rng, rate / 5.5, seconds))
    ]


def shared(
    rate: float, seconds: float, seed: int, kinds: int = 512, tokens: int = 2000
) -> list[Job]:
    """Questions of 60 tokens behind one of many long prompts, some of which are asked often (Zipf)
    and most seldom."""
    rng = random.Random(seed)
    weights = [1 / (1 + k) ** 0.8 for k in range(kinds)]
    jobs = []
    for n, at in enumerate(_poisson(rng, rate, seconds)):
        kind = rng.choices(range(kinds), weights)[0]
        parts = [(("prompt", kind), tokens), (("question", n), 60)]
        jobs.append(Job(at, tokens + 60, chained(parts), 1 + int(rng.expovariate(1 / 100))))
    return jobs


TRACES: dict[str, tuple[Callable[[float, float, int], list[Job]], float]] = {
    "chat": (chat, 260.0),
    "agents": (agents, 160.0),
    "shared": (shared, 280.0),
}
"""Each with its requests a second for 64 engines, about what these bear when they choose well."""


def _turn(
    rng: random.Random, at: float, first: tuple[object, int], name: str,
    more: int, answer: int, pause: float, most: int,
) -> Job:  # fmt: skip
    """The first of a conversation, whose next come of it."""
    turns = rng.randint(1, most)

    def asked(at: float, parts: list[tuple[object, int]], turn: int) -> Job:
        parts = [*parts, ((name, turn), 1 + int(rng.expovariate(1 / more)))]
        says = 1 + int(rng.expovariate(1 / answer))

        def then(now: float) -> Iterable[Job]:
            if turn < turns:
                later = [*parts, ((name, turn, "answer"), says)]
                yield asked(now + rng.expovariate(1 / pause), later, turn + 1)

        return Job(at, sum(n for _, n in parts), chained(parts), says, name, then)

    return asked(at, [first], 1)


def _poisson(rng: random.Random, rate: float, seconds: float) -> list[float]:
    found, now = [], 0.0
    while (now := now + rng.expovariate(rate)) < seconds:
        found.append(now)
    return found
