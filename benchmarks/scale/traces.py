"""Synthetic request traces for `routing.py`, from a seed: every policy gets the same requests."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence

from benchmarks.scale.simulator import BLOCK, Job


def block_hashes(parts: Sequence[tuple[object, int]]) -> list[int]:
    """The hash of each whole block of a prompt of parts (name, tokens). Two blocks are equal if
    the names of all parts up to their end are."""
    chain, state, done, length = [], 0, 0, 0
    for name, tokens in parts:
        length += tokens
        while (done + 1) * BLOCK <= length:
            done += 1
            state = hash((state, name, done))
            chain.append(state)
        state = hash((state, name))
    return chain


def chat(rate: float, seconds: float, seed: int) -> list[Job]:
    """Chats of up to eight turns with one of four system prompts: each turn extends the one before,
    eight seconds later on average."""
    rng = random.Random(seed)
    return [
        _turn(rng, at, (("system", rng.randrange(4)), 512), f"chat {n}", 80, 150, 8.0, 8)
        for n, at in enumerate(_poisson(rng, rate / 4.5, seconds))
    ]


def agents(rate: float, seconds: float, seed: int) -> list[Job]:
    """Agents of 48 kinds, each with 3,000 tokens of tool definitions, which send 400 tokens of a
    tool result every second, up to ten times."""
    rng = random.Random(seed)
    return [
        _turn(rng, at, (("tools", rng.randrange(48)), 3000), f"agent {n}", 400, 60, 1.0, 10)
        for n, at in enumerate(_poisson(rng, rate / 5.5, seconds))
    ]


def shared(
    rate: float, seconds: float, seed: int, kinds: int = 512, tokens: int = 2000
) -> list[Job]:
    """Questions of 60 tokens behind one of many long prompts, whose frequencies are Zipf's."""
    rng = random.Random(seed)
    weights = [1 / (1 + k) ** 0.8 for k in range(kinds)]
    jobs = []
    for n, at in enumerate(_poisson(rng, rate, seconds)):
        kind = rng.choices(range(kinds), weights)[0]
        parts = [(("prompt", kind), tokens), (("question", n), 60)]
        jobs.append(Job(at, tokens + 60, block_hashes(parts), 1 + int(rng.expovariate(1 / 100))))
    return jobs


TRACES: dict[str, tuple[Callable[[float, float, int], list[Job]], float]] = {
    "chat": (chat, 260.0),
    "agents": (agents, 160.0),
    "shared": (shared, 280.0),
}
"""Each with its requests a second for 64 engines: about the most they serve with good routing."""


def _turn(
    rng: random.Random, at: float, first: tuple[object, int], name: str,
    question: int, answer: int, pause: float, max_turns: int,
) -> Job:  # fmt: skip
    """The first turn of a conversation; `Job.then` yields the next ones."""
    turns = rng.randint(1, max_turns)

    def turn_of(at: float, parts: list[tuple[object, int]], turn: int) -> Job:
        parts = [*parts, ((name, turn), 1 + int(rng.expovariate(1 / question)))]
        tokens = 1 + int(rng.expovariate(1 / answer))

        def then(now: float) -> Iterable[Job]:
            if turn < turns:
                later = [*parts, ((name, turn, "answer"), tokens)]
                yield turn_of(now + rng.expovariate(1 / pause), later, turn + 1)

        return Job(at, sum(n for _, n in parts), block_hashes(parts), tokens, name, then)

    return turn_of(at, [first], 1)


def _poisson(rng: random.Random, rate: float, seconds: float) -> list[float]:
    times, now = [], 0.0
    while (now := now + rng.expovariate(rate)) < seconds:
        times.append(now)
    return times
