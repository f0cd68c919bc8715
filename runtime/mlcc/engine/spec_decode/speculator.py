"""Speculation: what is guessed of an answer before the model says it, and how far ahead.

Guesses come from a `Proposer` (the text itself: `lookup.py`; a smaller model: `drafts.py`). The
model computes them all in one step, several rows of a sequence, and what it would have said is
taken up to the first guess that is wrong (Leviathan et al., 2023). Each token is drawn by its
position (`sampling.py`), so that guesses change when a token comes and never which.

How far ahead is decided where the numbers are, here: another guess is worth its time while the
chance that it is needed, per what it adds to the step, is above what the step gives without it. So
guesses get fewer as they fail, and as more sequences share a step, down to none. Chances are
learned from what was guessed, and of text that costs nothing to look up also from guesses that were
not tried. Where all of that is wrong, `guess_budget.py` bounds what it may cost.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from mlcc.engine.kv_cache.radix_tree import RadixTree
from mlcc.engine.request import Request
from mlcc.engine.spec_decode.budget import DraftBudget, StepCost

LONGEST = 8
"""Guesses of a step, if nothing else is said."""
_FADES = 0.9
"""What is left of the weight of what was learned, with each lesson of a sequence."""
_SHARED_FADES = 0.98
"""The same of what all sequences learned."""
_FIRST = {"tree": 0.8, "gram5": 0.7, "gram3": 0.5, "gram2": 0.3}
"""How often the first of some guesses is right, until it is learned; others: 0.6."""
_TRUST = 4.0
"""Lessons of its own after which a sequence hears as much on itself as on the others."""


class Proposal(NamedTuple):
    """Tokens that may follow, and where they were found: chances are learned by that."""

    tokens: Sequence[int]
    origin: str


class Proposer(Protocol):
    """Guesses for one sequence."""

    free: bool
    """Whether a guess costs next to nothing: then it is decided, once it is there, how much of it
    is tried, and what is not tried teaches too. Else it was decided before it was made."""

    def propose(self, most: int) -> Proposal | None:
        """Up to `most` tokens behind those that are known; None = nothing comes to mind."""
        ...

    @property
    def origin(self) -> str:
        """Of guesses that cost."""
        ...

    def count(self, worth: int) -> int:
        """Guesses that cost, to make where so many are worth it."""
        ...


class DecodeStats(NamedTuple):
    """What a step did, as guessing sees it."""

    tokens: int
    """That it computed; 0 = there are prompts among them."""
    decodes: int
    """Sequences that decode, waited for or not."""
    rows: int
    """Those of which it says a token in any case."""
    guesses: int
    waited: bool
    """Whether one is not in it, as guesses may follow its token in flight."""


OpenProposer = Callable[[Request, "array[int]", RadixTree, Hashable], Proposer | None]
"""For a new request: its known tokens, to which the engine appends, the prefix cache and who shares
its part of that. None = it is answered without guesses."""


@dataclass(slots=True)
class AcceptanceRates:
    """How often the first of some guesses is right, and each next one if those before are."""

    first: float = 0.6
    next: float = 0.8
    weight: float = 0.0

    def learn(self, guessed: int, right: int, fades: float) -> None:
        """Of so many guesses in a row so many were right."""
        self.weight = self.weight * fades + 1
        self.first += ((right > 0) - self.first) / self.weight
        tried = min(guessed, right + 1) - 1
        if tried > 0:
            share = min(1.0, tried / self.weight)
            self.next += ((right - 1) / tried - self.next) * share


@dataclass(slots=True)
class _Untried:
    """A guess that was not tried, and where it begins."""

    at: int
    guess: Proposal


@dataclass(eq=False, slots=True)
class DraftState:
    """Of one sequence."""

    speculator: Speculator
    tokens: array[int]
    proposer: Proposer
    chances: dict[str, AcceptanceRates] = field(default_factory=dict)
    tried: str = ""
    """The origin of the guesses in flight."""
    shadow: _Untried | None = None

    def propose(self, most: int) -> Sequence[int]:
        """Guesses that are worth a place in the step that is planned, `most` at most."""
        self._compare()
        if self.speculator.resting:
            return ()
        guess = self.proposer.propose(min(most, self.speculator.longest)) if most > 0 else None
        if guess is None or not guess.tokens:
            return ()
        chances, count = self.chances_of(guess.origin), len(guess.tokens)
        if self.proposer.free:
            count = self.speculator.worth(chances, count)
        if not count:
            if self.shadow is None:
                self.shadow = _Untried(len(self.tokens), guess)
            return ()
        self.tried = guess.origin
        return guess.tokens[:count]

    def holds(self) -> bool:
        """Whether to wait for a token that is in flight, as guesses may follow it."""
        if self.speculator.resting:
            return False
        if not self.proposer.free:
            return self.count(self.speculator.longest) > 0
        guess = self.proposer.propose(self.speculator.longest)
        if guess is None or len(guess.tokens) < 2:
            return False
        return self.speculator.would(self.chances_of(guess.origin), len(guess.tokens)) > 1

    def count(self, most: int) -> int:
        """Guesses to make, of which each costs."""
        if self.speculator.resting:
            return 0
        chances, more = self.chances_of(self.proposer.origin), self.speculator.draft_share
        return self.proposer.count(self.speculator.would(chances, most, more))

    def wants(self, pending: bool) -> bool:
        """Whether its next step may be another than that of its last token alone. pending: whether
        that is in flight."""
        return self.holds() if pending else bool(self.propose(self.speculator.longest))

    def learn(self, guessed: int, right: int) -> None:
        """What became of the guesses in flight."""
        self._learn(self.tried, guessed, right)

    def chances_of(self, origin: str) -> AcceptanceRates:
        """The sequence's own, the less of the others' the more there is of its own."""
        own, shared = self.chances.get(origin), self.speculator.chances(origin)
        if own is None:
            return shared
        trust = own.weight / (own.weight + _TRUST)
        first = shared.first + (own.first - shared.first) * trust
        return AcceptanceRates(first, shared.next + (own.next - shared.next) * trust)

    def _compare(self) -> None:
        """What became of guesses that were not tried."""
        if (shadow := self.shadow) is None:
            return
        came, tokens = self.tokens[shadow.at :], shadow.guess.tokens
        right = 0
        for token, guess in zip(came, tokens, strict=False):
            if token != guess:
                break
            right += 1
        if right == len(came) < len(tokens):
            return  # as far as can be said
        self.shadow = None
        self._learn(shadow.guess.origin, len(tokens), right)

    def _learn(self, origin: str, guessed: int, right: int) -> None:
        own = self.chances.setdefault(origin, AcceptanceRates())
        own.learn(guessed, right, _FADES)
        self.speculator.chances(origin).learn(guessed, right, _SHARED_FADES)


class Speculator:
    """Of one engine: opens the guesses of its sequences, and knows what a step is worth.

    longest: guesses of a sequence in a step, at most. cost: what steps take, as they were measured.
    """

    def __init__(
        self, open_proposer: OpenProposer, longest: int = LONGEST, cost: StepCost | None = None
    ) -> None:
        self.longest = longest
        self.cost, self.budget = cost or StepCost(), DraftBudget()
        self.resting = False
        """Whether the step that is planned has no guesses, as enough was lost by them."""
        self._open = open_proposer
        self._shared: dict[str, AcceptanceRates] = {}
        self.draft_share = 0.0
        """Of a step, that making a guess takes."""
        self._tokens = 0
        """Of the step that is planned, as far as it is known."""
        self._gives = 0.0
        """Tokens of answers that it will bring."""

    def open(
        self, request: Request, tokens: array[int], tree: RadixTree, scope: Hashable
    ) -> DraftState | None:
        """For a new request; None = it is answered without."""
        proposer = self._open(request, tokens, tree, scope)
        return None if proposer is None else DraftState(self, tokens, proposer)

    def begin(self, decodes: int) -> None:
        """A step is planned in which so many sequences decode."""
        self._tokens, self._gives = max(decodes, 1), float(max(decodes, 1))
        self.resting = not self.budget.allows(self._tokens)

    def took(self, step: DecodeStats, right: int, seconds: float | None) -> None:
        """A step is done, and so many of its guesses were right; seconds: if that was measured."""
        if step.tokens:
            self.cost.took(step.tokens, seconds)
        if not step.decodes:
            return
        if not step.tokens:
            if step.guesses:
                share = self.cost.share(step.decodes)
                self.budget.beside(step.decodes, step.guesses, right, share)
        elif step.guesses or step.waited:
            self.budget.guessed(step.decodes, step.rows + right, seconds)
        else:
            self.budget.plain(step.rows, seconds)

    def chances(self, origin: str) -> AcceptanceRates:
        """What all sequences learned of guesses of an origin."""
        if origin not in self._shared:
            self._shared[origin] = AcceptanceRates(_FIRST.get(origin, 0.6), weight=_TRUST)
        return self._shared[origin]

    def worth(self, chances: AcceptanceRates, most: int) -> int:
        """How many guesses to take into the step."""
        count, tokens, gives = self._reach(chances, most)
        self._tokens, self._gives = tokens, gives
        return count

    def would(self, chances: AcceptanceRates, most: int, more: float = 0.0) -> int:
        """How many it would take. more: what each costs beside its place, in steps."""
        return self._reach(chances, most, more)[0]

    def _reach(
        self, chances: AcceptanceRates, most: int, more: float = 0.0
    ) -> tuple[int, int, float]:
        tokens, gives = self._tokens, self._gives
        chance, count = chances.first, 0
        while count < most and chance > gives * (self.cost.share(tokens) + more):
            count, tokens, gives = count + 1, tokens + 1, gives + chance
            chance *= chances.next
        return count, tokens, gives
