"""Load generator: seeded workloads, a streaming client that measures, closed and open loops.

Prompts are random token ids; answers have exactly the requested length (`ignore_eos`).
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
class LoadRequest:
    """One prompt, the length of its answer, and the client's next request after it."""

    prompt: Ids
    max_tokens: int
    then: LoadRequest | None = None
    grammar: str = ""
    """In GBNF; both servers accept it in the field `grammar`."""
    model: str | None = None
    """The name of a model or adapter; None = the server's default."""


@dataclass
class RequestMetrics:
    """Measurements of one answer. Times in seconds since the request was due."""

    chunk_times: list[float] = field(default_factory=list)
    tokens: int = 0
    cached_tokens: int = 0
    error: str = ""

    @property
    def gaps(self) -> list[float]:
        return [b - a for a, b in pairwise(self.chunk_times)]


class RandomTokens:
    """Random tokens of a vocabulary, without the first 300, which are often special."""

    def __init__(self, seed: int, vocab: int) -> None:
        self.rng = random.Random(seed)
        self._vocab = vocab

    def __call__(self, count: int) -> Ids:
        return [self.rng.randrange(300, self._vocab) for _ in range(count)]


def short(tokens: RandomTokens, count: int) -> list[LoadRequest]:
    """128 tokens in, 64 out, nothing shared."""
    return [LoadRequest(tokens(128), 64) for _ in range(count)]


def shared_prefix(tokens: RandomTokens, count: int) -> list[LoadRequest]:
    """One system prompt of 2,000 tokens before questions of 32."""
    system = tokens(2000)
    return [LoadRequest([*system, *tokens(32)], 32) for _ in range(count)]


def multi_turn(tokens: RandomTokens, count: int) -> list[LoadRequest]:
    """Chats of four turns. The earlier answers in a prompt are random too, because the server sends
    no token ids; so the cached prefix ends with the last question."""
    chats = []
    for _ in range(max(1, count // 4)):
        turns = [LoadRequest(tokens(200), 32)]
        while len(turns) < 4:
            turns.append(LoadRequest([*turns[-1].prompt, *tokens(32 + 40)], 32))
        for turn, following in pairwise(turns):
            turn.then = following
        chats.append(turns[0])
    return chats


def long_prompts(tokens: RandomTokens, count: int) -> list[LoadRequest]:
    """Chats of 64 + 128 tokens, and for each four of them one prompt of 4,000 tokens."""
    return [
        LoadRequest(tokens(4000), 16) if i % 5 == 4 else LoadRequest(tokens(64), 128)
        for i in range(count)
    ]


def mixed(tokens: RandomTokens, count: int) -> list[LoadRequest]:
    """Log-uniform lengths: 16 to 2,000 tokens in, 8 to 256 out."""

    def length(low: float, high: float) -> int:
        return int(low * (high / low) ** tokens.rng.random())

    return [LoadRequest(tokens(length(16, 2000)), length(8, 256)) for _ in range(count)]


def copy_heavy(tokens: RandomTokens, count: int) -> list[LoadRequest]:
    """A passage four times, like prompts whose answers repeat them. (Answers of random weights do
    not.)"""
    return [
        LoadRequest([*(passage := tokens(150)), *passage, *passage, *passage], 64)
        for _ in range(count)
    ]


GRAMMAR = r"""
root ::= object ("," object){99}
object ::= "{\"name\": " string ", \"count\": " number ", \"tags\": " tags "}"
tags ::= "[" string (", " string){0,3} "]"
string ::= "\"" [a-z]{3,12} "\""
number ::= [1-9] [0-9]{0,3}
"""
"""A list too long for any answer to reach its end."""


def structured(tokens: RandomTokens, count: int) -> list[LoadRequest]:
    """`short` with a grammar for each answer."""
    return [replace(request, grammar=GRAMMAR) for request in short(tokens, count)]


WORKLOADS: dict[str, Callable[[RandomTokens, int], list[LoadRequest]]] = {
    "short": short,
    "shared-prefix": shared_prefix,
    "multi-turn": multi_turn,
    "long-prompts": long_prompts,
    "mixed": mixed,
    "copy-heavy": copy_heavy,
    "structured": structured,
}


async def send(url: str, request: LoadRequest, due: float) -> RequestMetrics:
    """Stream one answer over a new connection. `due`: the scheduled time of sending."""
    metrics, address = RequestMetrics(), urlsplit(url)
    fields: dict[str, Any] = {
        "prompt": request.prompt,
        "max_tokens": request.max_tokens,
        "temperature": 0,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if request.grammar:  # sampled, because greedy answers of random weights repeat one token
        fields |= {"grammar": request.grammar, "temperature": 1.0, "seed": request.prompt[0]}
    if request.model is not None:
        fields["model"] = request.model
    body = json.dumps(fields).encode()
    head = (
        f"POST /v1/completions HTTP/1.1\r\nHost: {address.netloc}\r\nConnection: close\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    reader, writer = await asyncio.open_connection(address.hostname, address.port, limit=1 << 20)
    try:
        writer.write(head.encode() + body)
        status = (await reader.readline()).split(b" ")
        if status[1:2] != [b"200"]:
            metrics.error = (await reader.read()).decode(errors="replace")[-200:]
        while not metrics.error and (line := await reader.readline()):
            if line.startswith(b"data: {"):  # else a header, a chunk size, [DONE]
                _record(metrics, json.loads(line[6:]), time.perf_counter() - due)
    finally:
        writer.close()
    if not metrics.error and metrics.tokens != request.max_tokens:
        metrics.error = f"{metrics.tokens} tokens instead of {request.max_tokens}"
    return metrics


def _record(metrics: RequestMetrics, event: dict[str, object], now: float) -> None:
    if event.get("choices"):
        metrics.chunk_times.append(now)
    if isinstance(usage := event.get("usage"), dict):
        metrics.tokens = usage["completion_tokens"]
        metrics.cached_tokens = (usage.get("prompt_tokens_details") or {}).get("cached_tokens", 0)
    if "error" in event:
        metrics.error = json.dumps(event["error"])[:200]


async def _conversation(
    url: str, request: LoadRequest, due: float, results: list[RequestMetrics]
) -> None:
    following: LoadRequest | None = request
    while following:
        results.append(await send(url, following, due))
        following, due = following.then, time.perf_counter()


async def closed_loop(
    url: str, requests: Sequence[LoadRequest], streams: int
) -> list[RequestMetrics]:
    """`streams` clients; each sends its next request as soon as the last one is answered."""
    waiting, results = [*reversed(requests)], []  # type: ignore[var-annotated]

    async def client() -> None:
        while waiting:
            await _conversation(url, waiting.pop(), time.perf_counter(), results)

    await asyncio.gather(*(client() for _ in range(streams)))
    return results


async def open_loop(
    url: str, requests: Sequence[LoadRequest], rate: float, seed: int
) -> list[RequestMetrics]:
    """Requests arrive by a Poisson process of `rate` a second, served or not."""
    rng, results, tasks = random.Random(seed), [], []  # type: ignore[var-annotated]
    due = time.perf_counter()
    for request in requests:
        due += rng.expovariate(rate)
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        tasks.append(asyncio.ensure_future(_conversation(url, request, due, results)))
    await asyncio.gather(*tasks)
    return results
