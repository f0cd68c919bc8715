"""Speculative decoding: drafts tokens of an output, and decides how many.

Draft tokens come from a `Proposer` (the text itself: `ngram.py`; a smaller model:
`draft_model.py`). The model verifies them in one step, in several rows of a sequence; the output
takes them up to the first mismatch (Leviathan et al., 2023). Each draw depends on the position only
(`random.py`), so drafting changes when a token comes, never which.

How many tokens to draft is decided here: of all sequences' draft tokens a step takes the likeliest,
as many as yield most tokens in its time (`Speculator.plan`). So drafts get shorter as tokens are
rejected and as more sequences share a step, down to none, and a step gets as many rows as its
products compute at once.
Acceptance rates are learned from verified drafts, and for free proposers also from drafts that were
not tried. `budget.py` bounds the loss where these estimates are wrong.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from mlcc.engine.kv_cache.radix_tree import RadixTree
from mlcc.engine.request import Request
from mlcc.engine.spec_decode.budget import DraftBudget, StepCost

MAX_DRAFT_TOKENS = 8
"""Default of the most draft tokens of a sequence in a step."""
_DECAY = 0.9
"""Decay of a sequence's own statistics, per observation."""
_SHARED_DECAY = 0.98
"""Decay of the statistics of all sequences."""
_INITIAL = {"tree": 0.8, "mtp": 0.7, "gram5": 0.7, "gram3": 0.5, "gram2": 0.3}
"""Initial acceptance rate of the first draft token, by origin; others: 0.6."""
_INITIAL_WEIGHT = 2.0
"""Observations for which those initial rates stand."""
_PRIOR_WEIGHT = 4.0
"""Observations after which a sequence's own rates weigh as much as the shared ones."""


_LEAST_GAIN = 1.02
"""Yield of a step with draft tokens to that without, at least: estimates of both are noisy."""


class Proposal(NamedTuple):
    """Draft tokens and their origin, by which acceptance rates are kept."""

    tokens: Sequence[int]
    origin: str


class Offer(NamedTuple):
    """A sequence's draft tokens for a step."""

    chances: Sequence[float]
    """Of each, that it and those before it are accepted."""
    made: bool = False
    """Whether they cost time and are verified in any case."""


class Proposer(Protocol):
    """Drafts tokens for one sequence."""

    free: bool
    """Whether a draft costs almost nothing. If so, the number to verify is decided after proposing,
    and drafts that are not tried teach too. Else it is decided before."""

    def propose(self, most: int) -> Proposal | None:
        """Up to `most` tokens after the known ones; None = no proposal."""
        ...

    @property
    def origin(self) -> str:
        """Origin of drafts that cost time."""
        ...

    def num_to_draft(self, worthwhile: int) -> int:
        """Number of tokens to draft at a cost, if `worthwhile` tokens pay."""
        ...


class DecodeStats(NamedTuple):
    """A committed step, as the speculator sees it."""

    tokens: int
    """Tokens computed; 0 = some are prompt tokens."""
    decodes: int
    """Decoding sequences, including those that wait."""
    rows: int
    """Sequences that yield a token in any case."""
    drafted: int
    waited: bool
    """Whether a sequence was left out, to draft after its token in flight."""


OpenProposer = Callable[[Request, "array[int]", RadixTree, Hashable], Proposer | None]
"""Opens a proposer for a new request: its known tokens, to which the engine appends, the prefix
cache and the scope in it. None = no speculation for this request."""


@dataclass(slots=True)
class AcceptanceRates:
    """Acceptance rates of the first draft token, and of each next one if those before are
    accepted."""

    first: float = 0.6
    next: float = 0.8
    weight: float = 0.0

    def chances(self, drafted: int) -> Sequence[float]:
        """Of each token of a draft, that it and those before it are accepted."""
        return [self.first * self.next**i for i in range(drafted)]

    def expected(self, drafted: int) -> float:
        """Expected number of accepted tokens of a draft."""
        return sum(self.chances(drafted))

    def observe(self, drafted: int, accepted: int, decay: float) -> None:
        """Of `drafted` tokens in a row, `accepted` were accepted."""
        self.weight = self.weight * decay + 1
        self.first += ((accepted > 0) - self.first) / self.weight
        origin_in_flight = min(drafted, accepted + 1) - 1
        if origin_in_flight > 0:
            share = min(1.0, origin_in_flight / self.weight)
            self.next += ((accepted - 1) / origin_in_flight - self.next) * share


@dataclass(slots=True)
class _Untried:
    """A draft that was not verified, and the position where it begins."""

    at: int
    proposal: Proposal


@dataclass(eq=False, slots=True)
class DraftState:
    """Speculation state of one sequence."""

    speculator: Speculator
    tokens: array[int]
    proposer: Proposer
    acceptance: dict[str, AcceptanceRates] = field(default_factory=dict)
    origin_in_flight: str = ""
    """Origin of the draft tokens in flight."""
    untried: _Untried | None = None
    _found: tuple[int, Proposal | None] = (-1, None)
    """A free draft, and the number of known tokens that it follows."""

    def offer(self, most: int) -> Offer:
        """What `propose` could draft."""
        if self.speculator.paused or (proposal := self._proposal(most)) is None:
            return Offer(())
        chances = self.acceptance_of(proposal.origin).chances(len(proposal.tokens))
        return Offer(chances, not self.proposer.free and proposal.origin == self.proposer.origin)

    def _proposal(self, most: int) -> Proposal | None:
        """At most `most` draft tokens after the known ones; None = there are none."""
        most, known = min(most, self.speculator.max_draft), len(self.tokens)
        if most <= 0:
            return None
        if not self.proposer.free:
            found = self.proposer.propose(most)
        else:
            if self._found[0] != known:
                self._found = known, self.proposer.propose(self.speculator.max_draft)
            found = self._found[1]
        if found is None or not found.tokens:
            return None
        return Proposal(found.tokens[:most], found.origin)

    def propose(self, most: int) -> Sequence[int]:
        """Draft tokens worth verifying in the step being planned, at most `most`."""
        self.learn()
        if self.speculator.paused:
            return ()
        if (proposal := self._proposal(most)) is None:
            return ()
        acceptance, count = self.acceptance_of(proposal.origin), len(proposal.tokens)
        if self.proposer.free or proposal.origin != self.proposer.origin:
            count = self.speculator.allocate(acceptance, count)
        if not count:
            if self.untried is None:
                self.untried = _Untried(len(self.tokens), proposal)
            return ()
        self.origin_in_flight = proposal.origin
        return proposal.tokens[:count]

    def should_wait(self) -> bool:
        """Whether to wait for the token in flight, because tokens may be drafted after it."""
        if self.speculator.paused:
            return False
        free, most = self.proposer.free, self.speculator.max_draft
        if not free and self.num_to_draft(most) > 0:
            return True
        proposal = self.proposer.propose(most)
        if proposal is None or len(proposal.tokens) < 2:
            return False
        if not free and proposal.origin == self.proposer.origin:
            return False
        return (
            self.speculator.worthwhile(self.acceptance_of(proposal.origin), len(proposal.tokens))
            > 1
        )

    def num_to_draft(self, most: int, planned: bool = False) -> int:
        """Number of tokens to draft with a proposer that costs time. planned: whether
        `Speculator.plan` has planned them, of which these are taken."""
        if self.speculator.paused:
            return 0
        acceptance, more = self.acceptance_of(self.proposer.origin), self.speculator.draft_cost
        if planned:
            return self.proposer.num_to_draft(self.speculator.allocate(acceptance, most))
        return self.proposer.num_to_draft(self.speculator.worthwhile(acceptance, most, more))

    def may_draft(self, pending: bool) -> bool:
        """Whether the next step may have draft tokens. pending: whether a token is in flight."""
        return self.should_wait() if pending else bool(self.propose(self.speculator.max_draft))

    def observe(self, drafted: int, accepted: int) -> None:
        """Result of the draft in flight."""
        self._record(self.origin_in_flight, drafted, accepted)

    def acceptance_of(self, origin: str) -> AcceptanceRates:
        """Blend of the sequence's own rates and the shared ones, by the number of own
        observations."""
        own, shared = self.acceptance.get(origin), self.speculator.acceptance(origin)
        if own is None:
            return shared
        weight = own.weight / (own.weight + _PRIOR_WEIGHT)
        first = shared.first + (own.first - shared.first) * weight
        return AcceptanceRates(first, shared.next + (own.next - shared.next) * weight)

    def learn(self) -> None:
        """Compare an untried draft with the tokens that came."""
        if (untried := self.untried) is None:
            return
        came, tokens = self.tokens[untried.at :], untried.proposal.tokens
        accepted = 0
        for token, draft_token in zip(came, tokens, strict=False):
            if token != draft_token:
                break
            accepted += 1
        if accepted == len(came) < len(tokens):
            return  # not decided yet
        self.untried = None
        self._record(untried.proposal.origin, len(tokens), accepted)

    def _record(self, origin: str, drafted: int, accepted: int) -> None:
        own = self.acceptance.setdefault(origin, AcceptanceRates())
        own.observe(drafted, accepted, _DECAY)
        self.speculator.acceptance(origin).observe(drafted, accepted, _SHARED_DECAY)


class Speculator:
    """Speculation of one engine: opens the state of its sequences, and estimates what a step
    yields.

    max_draft: most draft tokens of a sequence in a step. cost: measured step times.
    """

    def __init__(
        self,
        open_proposer: OpenProposer,
        max_draft: int = MAX_DRAFT_TOKENS,
        cost: StepCost | None = None,
    ) -> None:
        self.max_draft = max_draft
        self.cost, self.budget = cost or StepCost(), DraftBudget()
        self.paused = False
        """Whether the step being planned has no drafts because the budget is spent."""
        self._open = open_proposer
        self._shared: dict[str, AcceptanceRates] = {}
        self.draft_cost = 0.0
        """Time to make one draft token, as a share of a step."""
        self._tokens = 0
        """Tokens in the step being planned, so far."""
        self._expected_tokens = 0.0
        """Expected output tokens of that step."""
        self._planned: tuple[float, int] | None = None
        """Least chance of draft tokens to take into the step, and how many are left to take; None =
        each sequence decides by itself."""

    def open(
        self, request: Request, tokens: array[int], tree: RadixTree, scope: Hashable
    ) -> DraftState | None:
        """State of a new request; None = no speculation for it."""
        proposer = self._open(request, tokens, tree, scope)
        return None if proposer is None else DraftState(self, tokens, proposer)

    def begin_step(self, decodes: int) -> None:
        """Begin a step with `decodes` decoding sequences."""
        self._tokens, self._expected_tokens = max(decodes, 1), float(max(decodes, 1))
        self._planned = None
        self.paused = not self.budget.allows(self._tokens)

    def observe(self, step: DecodeStats, accepted: int, seconds: float | None) -> None:
        """A step is done; `accepted` of its draft tokens were accepted. seconds: None = not
        measured."""
        if step.tokens:
            self.cost.observe(step.tokens, seconds)
        if not step.decodes:
            return
        if not step.tokens:
            if step.drafted:
                share = self.cost.marginal_share(step.decodes)
                self.budget.observe_mixed(step.decodes, step.drafted, accepted, share)
        elif step.drafted or step.waited:
            self.budget.observe_drafted(step.decodes, step.rows + accepted, seconds)
        else:
            self.budget.observe_plain(step.rows, seconds)

    def acceptance(self, origin: str) -> AcceptanceRates:
        """Shared rates of an origin."""
        if origin not in self._shared:
            self._shared[origin] = AcceptanceRates(
                _INITIAL.get(origin, 0.6), weight=_INITIAL_WEIGHT
            )
        return self._shared[origin]

    def allocate(self, acceptance: AcceptanceRates, most: int) -> int:
        """Number of draft tokens to take into the step, which then counts them."""
        if self._planned is None:
            return self.take(acceptance, self.worthwhile(acceptance, most))
        least, left = self._planned
        chances = acceptance.chances(min(most, left))
        count = sum(1 for chance in chances if chance >= least)
        self._planned = least, left - count
        return self.take(acceptance, count)

    def take(self, acceptance: AcceptanceRates, count: int) -> int:
        """Count draft tokens of a sequence as the step's. Returns how many."""
        self._tokens += count
        self._expected_tokens += acceptance.expected(count)
        return count

    def plan(self, offers: Iterable[Offer], most: int, more: float = 0.0) -> None:
        """Plan which of all sequences' draft tokens the step takes, at most `most`: the likeliest,
        as many as yield most tokens in its time. more: as in `worthwhile`."""
        made, free = 0, list[float]()
        expected = self._expected_tokens
        for offer in offers:
            if offer.made:
                made, expected = made + len(offer.chances), expected + sum(offer.chances)
            else:
                free += offer.chances
        free.sort(reverse=True)
        tokens, least, left = self._tokens + made, 1.0, 0
        extra = more * self.cost.time_of(self._tokens)
        most = self.cost.most_more(tokens, max(most - made, 0))
        best = _LEAST_GAIN * expected / self.cost.time_of(tokens)
        for count, chance in enumerate(free[:most], 1):
            expected += chance
            rate = expected / (self.cost.time_of(tokens + count) + extra * count)
            if rate > best:
                best, least, left = rate, chance, count
        self._planned = least, left

    def worthwhile(self, acceptance: AcceptanceRates, most: int, more: float = 0.0) -> int:
        """Number that pays for a sequence by itself. more: extra cost of each, as a share of a
        step."""
        whole, expected = self.cost.time_of(self._tokens), self._expected_tokens
        best, least = 0, _LEAST_GAIN * expected
        most = self.cost.most_more(self._tokens, most)
        for count, chance in enumerate(acceptance.chances(most), 1):
            expected += chance
            time = self.cost.time_of(self._tokens + count) / whole + more * count
            if expected / time > least:
                best, least = count, expected / time
        return best
