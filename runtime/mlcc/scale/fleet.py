"""Chooses the engine for a request: the one that will probably produce the first token first.

The cost of a request on an engine is the number of tokens to compute before its first token: the
prompt tokens that the engine's prefix cache does not have, plus a share for each request already
there. Cache hits are looked up in the engines' prefix digests
(`mlcc.engine.kv_cache.prefix_digest`) and in recently routed prompts. The queue term is unbounded
and a hit is bounded by the prompt length, so a popular engine cannot be overloaded by hits.
Requests are routed immediately and never wait for a better engine.

Only a few candidates are compared: those with the longest cached prefix, the one with the fewest
requests, and two random ones (power of two choices; Mitzenmacher, 2001). Before any engine has
reported, the random ones alone. Does no I/O and reads no clock.
"""

from __future__ import annotations

import random
from collections import OrderedDict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice

MOST_HOLDERS = 8
"""Engines compared for their cached prefix of a prompt."""
MOST_SESSIONS = 1 << 16
MOST_EXPECTED = 1 << 14
"""Hashes of recently routed prompts kept per engine, until it reports them."""
EXPECTED_S = 5.0
"""Seconds after which a routed prompt is in the engine's digest, or not cached."""
LOYALTY = 0.25
"""Bonus of a session's previous engine, as a share of the prompt's tokens."""
SHARE = 0.5
"""Delay by each request already on an engine, as a share of a typical prompt: most of them
decode."""
_SMOOTHING = 1 / 32


@dataclass(frozen=True, slots=True)
class Prompt:
    """The properties of a request that routing uses."""

    tokens: int
    beginnings: Sequence[tuple[int, int]] = ()
    """(tokens, hash) of each prefix, longest last
    (`mlcc.engine.kv_cache.prefix_digest.prefixes`)."""
    session: str = ""
    """Requests of one session are preferably sent to one engine."""


@dataclass(frozen=True, slots=True)
class EngineStatus:
    """The reported state of an engine."""

    hashes: frozenset[int] | set[int] = frozenset()
    live: int = 0
    """Requests that wait or run there, from all senders."""
    room: int = 1
    """Requests that can run together."""
    free_tokens: int | None = None
    """Tokens that fit into the free pages; None = unknown."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The chosen engine and the expected prefix cache hit, in tokens."""

    name: str
    hit: int


@dataclass(eq=False, slots=True)
class _Engine:
    name: str
    status: EngineStatus | None = None
    hashes: set[int] = field(default_factory=set)
    expected: OrderedDict[int, float] = field(default_factory=OrderedDict)
    """Hashes of recently routed prompts, and the time of each."""
    own: int = 0
    """Running requests that this router sent."""
    others: int = 0
    """Requests of other senders, at the last report."""

    @property
    def load(self) -> int:
        return self.own + self.others


class Fleet:
    """All engines, as one sender sees them. `now` is in seconds of one clock."""

    def __init__(self, seed: int | None = None) -> None:
        self._engines: dict[str, _Engine] = {}
        self._names: list[str] = []
        self._holders: dict[int, dict[str, None]] = {}
        """Engines that have the prefix with a given hash."""
        self._sessions: OrderedDict[str, str] = OrderedDict()
        self._random = random.Random(seed)
        self._typical = 256.0
        """Moving average of the tokens that a request computes."""

    def __len__(self) -> int:
        return len(self._names)

    def set_engines(self, names: Collection[str]) -> None:
        """Set the current engines; forget all others."""
        for name in self._engines.keys() - set(names):
            engine = self._engines.pop(name)
            for prefix in engine.hashes | engine.expected.keys():
                self._drop(prefix, name)
        for name in names:
            if name not in self._engines:
                self._engines[name] = _Engine(name)
        self._names = [*self._engines]

    def update(self, name: str, status: EngineStatus, now: float) -> None:
        """Replace the status of an engine."""
        engine = self._engines[name]
        for gone in engine.hashes - status.hashes:
            if gone not in engine.expected:
                self._drop(gone, name)
        for new in status.hashes - engine.hashes:
            self._holders.setdefault(new, {})[name] = None
        engine.hashes, engine.status = set(status.hashes), status
        engine.others = max(0, status.live - engine.own)
        self._expire(engine, now)

    def choose(
        self, prompt: Prompt, now: float, among: Collection[str] | None = None
    ) -> Choice | None:
        """Choose an engine and count the request to it; None = there are no engines. `among`
        restricts the candidates."""
        best, least = None, 0.0
        hits = self._hits(prompt, among)
        own = self._sessions.get(prompt.session) if prompt.session else None
        for name in self._candidates(hits, own, among):
            hit = hits.get(name, 0)
            cost = self._cost(self._engines[name], prompt.tokens - hit)
            cost -= LOYALTY * prompt.tokens if name == own else 0
            if best is None or cost < least:
                best, least = Choice(name, hit), cost
        if best is not None:
            self._typical += _SMOOTHING * (prompt.tokens - best.hit - self._typical)
            self._sent(best.name, prompt, now)
        return best

    def ended(self, name: str) -> None:
        """A request on this engine has ended, for whatever reason."""
        if (engine := self._engines.get(name)) is not None and engine.own:
            engine.own -= 1

    def _hits(self, prompt: Prompt, among: Collection[str] | None) -> dict[str, int]:
        found: dict[str, int] = {}
        for tokens, prefix in reversed(prompt.beginnings):
            holders = self._holders.get(prefix)
            if holders is None:
                continue
            skip = self._random.randrange(max(1, len(holders) - MOST_HOLDERS + 1))
            for name in islice(holders, skip, None):
                if among is None or name in among:
                    found.setdefault(name, tokens)
                if len(found) >= MOST_HOLDERS:
                    return found
        return found

    def _candidates(
        self, hits: Iterable[str], own: str | None, among: Collection[str] | None
    ) -> Iterable[str]:
        names = self._names if among is None else [n for n in self._names if n in among]
        if not names:
            return ()
        found = dict.fromkeys(self._random.sample(names, min(2, len(names))))
        if any(self._engines[name].status is not None for name in found):
            found[min(names, key=self._load)] = None
        found |= dict.fromkeys(hits)
        if own is not None and own in self._engines and (among is None or own in among):
            found[own] = None
        return found

    def _load(self, name: str) -> int:
        engine = self._engines[name]
        return engine.own + engine.others

    def _cost(self, engine: _Engine, tokens: int) -> float:
        """Tokens to compute before the first token, plus a penalty if pages are short: some request
        will be preempted and recomputed."""
        cost, status = tokens + SHARE * self._typical * engine.load, engine.status
        if status is not None:
            cost += self._typical * max(0, engine.load + 1 - status.room)
            if status.free_tokens is not None:
                cost += max(0, tokens - status.free_tokens)
        return cost

    def _sent(self, name: str, prompt: Prompt, now: float) -> None:
        engine = self._engines[name]
        engine.own += 1
        for _, prefix in prompt.beginnings:
            engine.expected[prefix] = now
            engine.expected.move_to_end(prefix)
            self._holders.setdefault(prefix, {})[name] = None
        while len(engine.expected) > MOST_EXPECTED:
            self._forget(engine, engine.expected.popitem(last=False)[0])
        if prompt.session:
            self._sessions[prompt.session] = name
            self._sessions.move_to_end(prompt.session)
            if len(self._sessions) > MOST_SESSIONS:
                self._sessions.popitem(last=False)

    def _expire(self, engine: _Engine, now: float) -> None:
        while engine.expected:
            prefix, since = next(iter(engine.expected.items()))
            if since + EXPECTED_S > now:
                return
            del engine.expected[prefix]
            self._forget(engine, prefix)

    def _forget(self, engine: _Engine, prefix: int) -> None:
        if prefix not in engine.hashes:
            self._drop(prefix, engine.name)

    def _drop(self, prefix: int, name: str) -> None:
        if (holders := self._holders.get(prefix)) is not None:
            holders.pop(name, None)
            if not holders:
                del self._holders[prefix]
