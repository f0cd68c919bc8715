"""Who asks a server what, and when: seeded workloads, a client that measures, loops.

Prompts are token ids, drawn at random; answers are as long as was asked, whatever the model says.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any
from urllib.parse import urlsplit

Ids = list[int]


@dataclass
class Ask:
    """One prompt, the tokens of its answer, and what its client asks once it is there."""

    prompt: Ids
    answer: int
    then: Ask | None = None
    grammar: str = ""
    """That holds the answer, in GBNF, which both servers take by this name."""
    model: str | None = None
    """By its name; None = the one that is there."""


@dataclass
class Seen:
    """What a client saw of one answer. Times in seconds, from when it was due to be sent."""

    pieces: list[float] = field(default_factory=list)
    tokens: int = 0
    cached: int = 0
    error: str = ""

    @property
    def gaps(self) -> list[float]:
        return [b - a for a, b in pairwise(self.pieces)]


class Words:
    """Random tokens of a vocabulary, without its first, which are often special."""

    def __init__(self, seed: int, vocab: int) -> None:
        self.draw = random.Random(seed)
        self._vocab = vocab

    def __call__(self, count: int) -> Ids:
        return [self.draw.randrange(300, self._vocab) for _ in range(count)]


def short(words: Words, count: int) -> list[Ask]:
    """128 tokens in, 64 out, nothing shared."""
    return [Ask(words(128), 64) for _ in range(count)]


def shared_prefix(words: Words, count: int) -> list[Ask]:
    """One system prompt of 2,000 tokens before questions of 32."""
    system = words(2000)
    return [Ask([*system, *words(32)], 32) for _ in range(count)]


def multi_turn(words: Words, count: int) -> list[Ask]:
    """Chats of four turns. What the client sends as earlier answers is drawn, too: ids of the real
    ones do not travel. So what can be found again ends with the last question."""
    chats = []
    for _ in range(max(1, count // 4)):
        turns = [Ask(words(200), 32)]
        while len(turns) < 4:
            turns.append(Ask([*turns[-1].prompt, *words(32 + 40)], 32))
        for turn, following in pairwise(turns):
            turn.then = following
        chats.append(turns[0])
    return chats


def long_prompts(words: Words, count: int) -> list[Ask]:
    """Chats of 64 + 128, and beside each four of them one prompt of 4,000 tokens."""
    return [Ask(words(4000), 16) if i % 5 == 4 else Ask(words(64), 128) for i in range(count)]


def mixed(words: Words, count: int) -> list[Ask]:
    """Lengths as they come: log-uniform, 16 to 2,000 in and 8 to 256 out."""

    def length(low: float, high: float) -> int:
        return int(low * (high / low) ** words.draw.random())

    return [Ask(words(length(16, 2000)), length(8, 256)) for _ in range(count)]


def copy_heavy(words: Words, count: int) -> list[Ask]:
    """A passage, four times: as prompts look whose answers repeat them. (What a model with random
    weights answers repeats nothing.)"""
    return [Ask([*(passage := words(150)), *passage, *passage, *passage], 64) for _ in range(count)]


GRAMMAR = r"""
root ::= object ("," object){99}
object ::= "{\"name\": " string ", \"count\": " number ", \"tags\": " tags "}"
tags ::= "[" string (", " string){0,3} "]"
string ::= "\"" [a-z]{3,12} "\""
number ::= [1-9] [0-9]{0,3}
"""
"""Of objects, so many that no answer comes to its end."""


def structured(words: Words, count: int) -> list[Ask]:
    """As `short`, each answer held to a grammar."""
    return [replace(ask, grammar=GRAMMAR) for ask in short(words, count)]


WORKLOADS: dict[str, Callable[[Words, int], list[Ask]]] = {
    "short": short,
    "shared-prefix": shared_prefix,
    "multi-turn": multi_turn,
    "long-prompts": long_prompts,
    "mixed": mixed,
    "copy-heavy": copy_heavy,
    "structured": structured,
}


async def ask(url: str, wish: Ask, due: float) -> Seen:
    """Stream one answer over a connection of its own. `due`: when it was to be sent."""
    seen, place = Seen(), urlsplit(url)
    fields: dict[str, Any] = {
        "prompt": wish.prompt,
        "max_tokens": wish.answer,
        "temperature": 0,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if wish.grammar:  # drawn, for the likeliest of random weights is one word for ever
        fields |= {"grammar": wish.grammar, "temperature": 1.0, "seed": wish.prompt[0]}
    if wish.model is not None:
        fields["model"] = wish.model
    body = json.dumps(fields).encode()
    head = (
        f"POST /v1/completions HTTP/1.1\r\nHost: {place.netloc}\r\nConnection: close\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    reader, writer = await asyncio.open_connection(place.hostname, place.port, limit=1 << 20)
    try:
        writer.write(head.encode() + body)
        status = (await reader.readline()).split(b" ")
        if status[1:2] != [b"200"]:
            seen.error = (await reader.read()).decode(errors="replace")[-200:]
        while not seen.error and (line := await reader.readline()):
            if line.startswith(b"data: {"):  # else a head line, a chunk's size, [DONE]
                _take(seen, json.loads(line[6:]), time.perf_counter() - due)
    finally:
        writer.close()
    if not seen.error and seen.tokens != wish.answer:
        seen.error = f"{seen.tokens} tokens instead of {wish.answer}"
    return seen


def _take(seen: Seen, event: dict[str, object], now: float) -> None:
    if event.get("choices"):
        seen.pieces.append(now)
    if isinstance(usage := event.get("usage"), dict):
        seen.tokens = usage["completion_tokens"]
        seen.cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens", 0)
    if "error" in event:
        seen.error = json.dumps(event["error"])[:200]


async def _chat(url: str, wish: Ask, due: float, found: list[Seen]) -> None:
    following: Ask | None = wish
    while following:
        found.append(await ask(url, following, due))
        following, due = following.then, time.perf_counter()


async def closed_loop(url: str, wishes: Sequence[Ask], streams: int) -> list[Seen]:
    """So many clients, each of which asks as soon as it has its answer."""
    waiting, found = [*reversed(wishes)], []  # type: ignore[var-annotated]

    async def client() -> None:
        while waiting:
            await _chat(url, waiting.pop(), time.perf_counter(), found)

    await asyncio.gather(*(client() for _ in range(streams)))
    return found


async def open_loop(url: str, wishes: Sequence[Ask], rate: float, seed: int) -> list[Seen]:
    """Clients come by a Poisson process of `rate` a second, whether or not others were served."""
    draw, found, tasks = random.Random(seed), [], []  # type: ignore[var-annotated]
    due = time.perf_counter()
    for wish in wishes:
        due += draw.expovariate(rate)
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        tasks.append(asyncio.ensure_future(_chat(url, wish, due, found)))
    await asyncio.gather(*tasks)
    return found
