"""Which of several engines gets a request: the one that is likely to begin its answer first.

What a request costs on an engine is counted in tokens to compute before its first token: those of
its prompt that the engine has not, and a share for each request that is there already. Hits are
looked for in what engines told of their prefix caches (`mlcc.engine.kv_cache.prefix_digest`) and
in what was sent to them since. As the queue counts without bound and a hit only as much as the
prompt is long, no engine is loved to death, and as each request is sent at once, none waits for a
better one.

Not considered is every engine, but a few that have the most of the prompt, the one with the fewest
requests, and two at random (Mitzenmacher, 2001: of two, the less loaded), which alone remain where
nobody told anything. Knows no ray, no clock and no network.
"""

from __future__ import annotations

import random
from collections import OrderedDict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice

MOST_HOLDERS = 8
"""Engines that are looked at for what they have of a prompt."""
MOST_SESSIONS = 1 << 16
MOST_EXPECTED = 1 << 14
"""Hashes of an engine that it has not told of yet."""
EXPECTED_S = 5.0
"""What was sent to an engine is told by it by then, or is not there."""
LOYALTY = 0.25
"""Of a prompt's tokens: what a session's own engine is worth."""
SHARE = 0.5
"""Of a prompt's computing, what a request that is there delays another: most of them decode."""
_SLOWLY = 1 / 32


@dataclass(frozen=True, slots=True)
class Prompt:
    """What is known of a request."""

    tokens: int
    beginnings: Sequence[tuple[int, int]] = ()
    """(tokens, hash), the longest last (`mlcc.engine.kv_cache.prefix_digest.prefix_hashes`)."""
    session: str = ""
    """Requests of one name had better stay together."""


@dataclass(frozen=True, slots=True)
class EngineStatus:
    """What an engine told of itself."""

    hashes: frozenset[int] | set[int] = frozenset()
    live: int = 0
    """Requests that wait or run there, whoever sent them."""
    room: int = 1
    """Requests that run together."""
    free_tokens: int | None = None
    """For which it has pages; None = it did not say."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The engine, and how many tokens of the prompt it is expected to have."""

    name: str
    hit: int


@dataclass(eq=False, slots=True)
class _Engine:
    name: str
    told: EngineStatus | None = None
    hashes: set[int] = field(default_factory=set)
    expected: OrderedDict[int, float] = field(default_factory=OrderedDict)
    """Hashes of what was sent to it, and when."""
    own: int = 0
    """Requests that were sent from here and have not ended."""
    others: int = 0
    """Those that others sent, when it told last."""

    @property
    def load(self) -> int:
        return self.own + self.others


class Fleet:
    """All engines, as one sender sees them. `now` of its methods are seconds of one clock."""

    def __init__(self, seed: int | None = None) -> None:
        self._engines: dict[str, _Engine] = {}
        self._names: list[str] = []
        self._holders: dict[int, dict[str, None]] = {}
        """Who has the prompt's beginning of a hash."""
        self._sessions: OrderedDict[str, str] = OrderedDict()
        self._random = random.Random(seed)
        self._typical = 256.0
        """Tokens that a request leaves to compute, on the average of late."""

    def __len__(self) -> int:
        return len(self._names)

    def set_engines(self, names: Collection[str]) -> None:
        """These are there now; others are forgotten."""
        for name in self._engines.keys() - set(names):
            engine = self._engines.pop(name)
            for told in engine.hashes | engine.expected.keys():
                self._drop(told, name)
        for name in names:
            if name not in self._engines:
                self._engines[name] = _Engine(name)
        self._names = [*self._engines]

    def update(self, name: str, told: EngineStatus, now: float) -> None:
        """What an engine tells replaces what it told before."""
        engine = self._engines[name]
        for gone in engine.hashes - told.hashes:
            if gone not in engine.expected:
                self._drop(gone, name)
        for new in told.hashes - engine.hashes:
            self._holders.setdefault(new, {})[name] = None
        engine.hashes, engine.told = set(told.hashes), told
        engine.others = max(0, told.live - engine.own)
        self._expire(engine, now)

    def choose(
        self, prompt: Prompt, now: float, among: Collection[str] | None = None
    ) -> Choice | None:
        """Where it is sent to; None = there is nobody. `among`: only these may get it."""
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
            self._typical += _SLOWLY * (prompt.tokens - best.hit - self._typical)
            self._sent(best.name, prompt, now)
        return best

    def ended(self, name: str) -> None:
        """A request that was sent there is over, however."""
        if (engine := self._engines.get(name)) is not None and engine.own:
            engine.own -= 1

    def _hits(self, prompt: Prompt, among: Collection[str] | None) -> dict[str, int]:
        found: dict[str, int] = {}
        for tokens, told in reversed(prompt.beginnings):
            holders = self._holders.get(told)
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
        if any(self._engines[name].told is not None for name in found):
            found[min(names, key=self._load)] = None
        found |= dict.fromkeys(hits)
        if own is not None and own in self._engines and (among is None or own in among):
            found[own] = None
        return found

    def _load(self, name: str) -> int:
        engine = self._engines[name]
        return engine.own + engine.others

    def _cost(self, engine: _Engine, tokens: int) -> float:
        """Tokens to compute before the first of an answer, and a penalty where pages are short:
        somebody will have to step back, and be computed again."""
        cost, told = tokens + SHARE * self._typical * engine.load, engine.told
        if told is not None:
            cost += self._typical * max(0, engine.load + 1 - told.room)
            if told.free_tokens is not None:
                cost += max(0, tokens - told.free_tokens)
        return cost

    def _sent(self, name: str, prompt: Prompt, now: float) -> None:
        engine = self._engines[name]
        engine.own += 1
        for _, told in prompt.beginnings:
            engine.expected[told] = now
            engine.expected.move_to_end(told)
            self._holders.setdefault(told, {})[name] = None
        while len(engine.expected) > MOST_EXPECTED:
            self._forget(engine, engine.expected.popitem(last=False)[0])
        if prompt.session:
            self._sessions[prompt.session] = name
            self._sessions.move_to_end(prompt.session)
            if len(self._sessions) > MOST_SESSIONS:
                self._sessions.popitem(last=False)

    def _expire(self, engine: _Engine, now: float) -> None:
        while engine.expected:
            told, since = next(iter(engine.expected.items()))
            if since + EXPECTED_S > now:
                return
            del engine.expected[told]
            self._forget(engine, told)

    def _forget(self, engine: _Engine, told: int) -> None:
        if told not in engine.hashes:
            self._drop(told, engine.name)

    def _drop(self, told: int, name: str) -> None:
        if (holders := self._holders.get(told)) is not None:
            holders.pop(name, None)
            if not holders:
                del self._holders[told]
