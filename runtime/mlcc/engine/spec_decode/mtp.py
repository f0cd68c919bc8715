"""Multi-token prediction: the model's own further layer drafts tokens (DeepSeek-AI, 2024).

Between two steps of the engine the layer runs over the tokens of the last one, whose hidden states
the device still has (`forward_mtp`), and then over its own drafts. At position i it reads the state
of token i and token i + 1, and predicts token i + 2. Its keys and values are those of one more
layer in the sequence's own pages, so that a shared prefix shares them too.

A state that is gone counts as zeros: of prefixes that were computed elsewhere, and of steps for
which drafting did not pay. Only drafts get worse by that, never outputs (`verifier.py`). So where
the layer rarely drafts it does not follow prompts either, nor the tokens that lookup drafts; a
sequence that it drafts for again is caught up on then.
"""

from __future__ import annotations

from array import array
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from mlcc.engine.batch.batch import Batch, BatchWriter, Cache, Capacity, PageList, Result, StateSlot
from mlcc.engine.batch.random import uniform
from mlcc.engine.batch.tables import CacheGroup
from mlcc.engine.kv_cache.cache_manager import CacheManager
from mlcc.engine.kv_cache.radix_tree import RadixTree
from mlcc.engine.request import Request
from mlcc.engine.sequence import TokenSequence
from mlcc.engine.spec_decode.budget import StepCost
from mlcc.engine.spec_decode.draft_model import DraftModel, ModelProposer, draft_of
from mlcc.engine.spec_decode.ngram import NgramProposer
from mlcc.engine.spec_decode.speculator import Offer, Proposal, Speculator
from mlcc.errors import UnsupportedError

ORIGIN = "mtp"
MTP_DRAFT_TOKENS = 3
"""Default of the most draft tokens in a row: each takes a step of the layer and of the head."""
_UNMEASURED_COST = 0.15
"""Time of the layer's step as a share of the model's, until both are measured."""
_LATEST_WEIGHT = 0.05
"""Weight of the latest step in the share of steps before which the layer drafts."""
_RARELY = 0.1
"""Share below which the layer follows only the sequences that it drafts for."""


@dataclass(eq=False, slots=True)
class MtpProposer(ModelProposer):
    """Drafts of the layer, or of the text itself where the layer made none."""

    origin: str = ORIGIN
    lookup: NgramProposer | None = None

    def propose(self, most: int) -> Proposal | None:
        """The layer's draft after the tokens that are known now, else one from the text."""
        own = ModelProposer.propose(self, most)
        return own if own is not None or self.lookup is None else self.lookup.propose(most)


@dataclass(slots=True)
class _Part:
    """A sequence's part of a step of the layer."""

    seq: TokenSequence
    draft: MtpProposer
    start: int
    """Position of the first of `tokens`, each of which follows the token at its position."""
    tokens: Sequence[int]
    hidden_rows: array[int]
    samples: bool
    last: int = -1
    """Index of its last token in the step."""

    @property
    def end(self) -> int:
        return self.start + len(self.tokens)


class MtpLayer:
    """The layer of a model with this capacity."""

    def __init__(self, capacity: Capacity) -> None:
        """Raises UnsupportedError if the model was compiled without one."""
        if not capacity.layout.has_mtp:
            raise UnsupportedError(
                "--speculate mtp: the model was compiled without its multi-token-prediction layer; "
                "compile it again with `mlcc compile --mtp`, or use --speculate lookup"
            )
        self.capacity, self.cost = capacity, StepCost()

    def open(
        self, request: Request, tokens: array[int], tree: RadixTree, scope: Hashable
    ) -> MtpProposer:
        """Opens a proposer, for `Speculator`."""
        return MtpProposer(tokens, lookup=NgramProposer.of(request, tokens, tree, scope))

    def runner(self, speculator: Speculator, pools: CacheManager) -> MtpRunner:
        """Plans the layer's steps."""
        return MtpRunner(self, speculator, pools)


Drafter: TypeAlias = DraftModel | MtpLayer
"""What makes an engine's drafts, if a model does."""


@dataclass(slots=True)
class _Round:
    """The layer's steps between two of the engine."""

    to_draft: dict[TokenSequence, int] = field(default_factory=dict)
    """Draft tokens still to make, by sequence."""
    claimed: list[TokenSequence] = field(default_factory=list)
    """Sequences with pages allocated for draft tokens."""
    in_flight: list[_Part] = field(default_factory=list)
    made: dict[TokenSequence, int] = field(default_factory=dict)
    """Index of a sequence's last token in the layer's last step."""


class MtpRunner:
    """The steps of the layer, between two steps of the engine, while none of those is in flight."""

    def __init__(self, layer: MtpLayer, speculator: Speculator, pools: CacheManager) -> None:
        self._layer, self._speculator, self._pools = layer, speculator, pools
        groups = layer.capacity.groups
        self._group = next(g for g, group in enumerate(groups) if group.kind == "paged")
        self._size = groups[self._group].page_size
        self._page_tokens: dict[int, tuple[int, bytes]] = {}
        """Pages that the layer has computed as a whole: page number in the sequence, and its
        tokens."""
        self._kept: dict[TokenSequence, tuple[int, range]] = {}
        """Hidden states on the device: where a sequence's begin, and their positions."""
        self._round: _Round | None = None
        self._drafting = 1.0
        """Share of the latest steps with decoding sequences before which the layer drafted."""

    def step_planned(self, chunks: Sequence[tuple[TokenSequence, int]]) -> None:
        """The engine's step was planned, with these chunks in their order."""
        self._kept, first = {}, 0
        for seq, count in chunks:
            self._kept[seq] = first, range(seq.computed - count, seq.computed)
            first += count

    def must_wait(self, running: Sequence[TokenSequence]) -> bool:
        """Whether the engine's next step must wait for the one in flight, because the layer then
        reads its states. Not while nothing is drafted: the steps go on as without the layer."""
        drafts = [seq for seq in running if isinstance(draft_of(seq), MtpProposer)]
        decoding = [seq for seq in drafts if seq.pending or self._decodes(seq)]
        self._begin_step(len(decoding))
        if self._speculator.budget.spent or self._spare_rows(running) <= 0:
            return False
        if not decoding:  # the layer reads prompts
            return bool(drafts) and not self._follows_few
        if self._speculator.paused:  # for one step
            return bool(drafts)
        return any(
            seq.draft_state is not None and seq.draft_state.should_wait() for seq in decoding
        )

    def plan(self, running: Sequence[TokenSequence], into: memoryview | None) -> Batch | None:
        """The layer's next step before the engine's; None = all drafts are made."""
        if self._round is None:
            self._round = _Round()
            parts = self._first_step(running, self._round)
            self._kept = {}  # the step replaces them
        else:
            parts = self._next_step(self._round)
        if not parts:
            return None
        writer = BatchWriter(self._layer.capacity.layout, into, mtp=True)
        parts.sort(key=lambda part: len(part.tokens) > 1)
        for part in parts:
            self._write(writer, part)
        self._round.in_flight = parts
        return writer.finish()

    def commit(self, result: Result, seconds: float | None) -> None:
        """Take the result of a step of the layer."""
        current = self._round
        assert current is not None
        tokens, parts = iter(result.tokens), current.in_flight
        current.made = {part.seq: part.last for part in parts}
        for part in parts:
            if not part.draft.draft:
                part.draft.computed = part.end
            if part.samples:
                part.draft.draft.append(int(next(tokens)))
                current.to_draft[part.seq] -= 1
        if all(part.samples for part in parts):
            self._speculator.budget.spend(seconds)  # prefill is not charged
            self._layer.cost.observe(len(parts), seconds)
        current.in_flight = []

    def finish_round(self, chunks: Sequence[tuple[TokenSequence, int]]) -> None:
        """The engine's next step is planned: free the pages of draft tokens that it does not
        verify."""
        counts = dict(chunks)
        for seq in self._round.claimed if self._round is not None else ():
            if not seq.finished:
                self._pools.trim(seq.caches, seq.computed + counts.get(seq, 0))
        self._round = None

    def forget(self) -> None:
        """No step is in flight, and the layer's pages may hold anything."""
        self._round, self._kept = None, {}
        self._page_tokens.clear()

    def _first_step(self, running: Sequence[TokenSequence], current: _Round) -> list[_Part]:
        """The layer's step over the tokens of the engine's last one, and over those before that it
        lacks. Sequences that decode get their first draft token."""
        drafts = [
            (seq, draft) for seq in running if isinstance(draft := draft_of(seq), MtpProposer)
        ]
        decoding = [(seq, draft) for seq, draft in drafts if self._decodes(seq)]
        self._begin_step(len(decoding))
        capacity, rows = self._layer.capacity, self._spare_rows(running)
        may = rows > 0 and not self._speculator.paused
        if may:
            offers = (self._offer(seq) for seq, _ in decoding[: capacity.max_batch])
            self._speculator.plan(offers, rows, self._speculator.draft_cost)
        for seq, draft in decoding[: capacity.max_batch] if may else ():
            rows -= self._claim(seq, draft, current, rows)
        if decoding:
            drafts_now = any(current.to_draft.values())
            self._drafting += _LATEST_WEIGHT * (drafts_now - self._drafting)
        if self._speculator.paused:
            return []
        wanted = [(seq, draft) for seq, draft in decoding if seq in current.to_draft]
        if self._follows_few:
            wanted = [(seq, draft) for seq, draft in wanted if current.to_draft[seq]]
        elif wanted or not decoding:
            wanted += [(s, d) for s, d in drafts if s in self._kept and not self._decodes(s)]
        return self._catch_up(wanted[: capacity.max_batch], current)

    @property
    def _follows_few(self) -> bool:
        """Whether the layer follows only the sequences that it drafts for."""
        return self._drafting < _RARELY

    def _begin_step(self, decodes: int) -> None:
        speculator, layer = self._speculator, self._layer
        speculator.begin_step(decodes)
        ratio = layer.cost.time / speculator.cost.time if speculator.cost.time else 0
        speculator.draft_cost = (ratio or _UNMEASURED_COST) / max(decodes, 1)

    def _decodes(self, seq: TokenSequence) -> bool:
        """Whether tokens may be drafted after this sequence now."""
        has_output = len(seq.tokens) > seq.prompt_tokens
        return has_output and not seq.pending and not seq.draft and seq.remaining == 1

    def _spare_rows(self, running: Sequence[TokenSequence]) -> int:
        """Rows of the engine's step for draft tokens."""
        return self._layer.capacity.max_rows - len(running)

    def _most(self, seq: TokenSequence) -> int:
        """Draft tokens that a sequence has room for."""
        room = min(seq.limit, self._layer.capacity.context) - len(seq.tokens) - 1
        return min(self._speculator.max_draft, room)

    def _offer(self, seq: TokenSequence) -> Offer:
        """The layer's draft tokens after a sequence, if it makes them."""
        assert seq.draft_state is not None
        return Offer(seq.draft_state.acceptance_of(ORIGIN).chances(self._most(seq)))

    def _claim(self, seq: TokenSequence, draft: MtpProposer, current: _Round, rows: int) -> int:
        """Decide how many tokens to draft for a sequence, at most `rows`, and allocate pages for
        them. Returns how many. With 0 in `to_draft` the layer only keeps up."""
        assert seq.draft_state is not None
        most = self._most(seq)
        count = seq.draft_state.num_to_draft(most, planned=True) if most > 0 else 0
        if count == 0:
            return 0
        current.to_draft[seq] = 0
        if draft.lookup is not None and (found := draft.lookup.propose(most)):
            looked_up = seq.draft_state.acceptance_of(found.origin).expected(len(found.tokens))
            if looked_up > seq.draft_state.acceptance_of(ORIGIN).expected(count):
                return min(rows, len(found.tokens))
        if count := min(count, rows):
            count = max(0, self._pools.claim(seq.caches, seq.computed, 1 + count) - 1)
            current.claimed.append(seq)
            current.to_draft[seq] = count
        return count

    def _sync(self, seq: TokenSequence, draft: MtpProposer) -> None:
        """Update which positions of the sequence's pages the layer has computed. If it got other
        pages, look up those that the layer has computed for another."""
        ids = self._pages(seq)
        draft.draft_start, draft.draft = -1, []
        if draft.caches_seen is not seq.caches:
            draft.caches_seen, draft.recorded = seq.caches, 0
            for number in range(min(len(ids), (len(seq.tokens) - 1) // self._size)):
                if self._page_tokens.get(ids[number]) != self._page(seq, number):
                    break
                draft.recorded = number + 1
            draft.computed = draft.recorded * self._size
        draft.computed = min(draft.computed, seq.computed)
        draft.recorded = min(draft.recorded, draft.computed // self._size)
        for number in range(draft.recorded, draft.computed // self._size):
            self._page_tokens[ids[number]] = self._page(seq, number)
            draft.recorded = number + 1

    def _page(self, seq: TokenSequence, number: int) -> tuple[int, bytes]:
        first = number * self._size
        return number, seq.tokens[first : first + self._size].tobytes()

    def _catch_up(
        self, wanted: Sequence[tuple[TokenSequence, MtpProposer]], current: _Round
    ) -> list[_Part]:
        """The parts of the first step; a sequence whose pages another one's part reads or writes
        waits for the next round."""
        read, written, parts = set[int](), set[int](), list[_Part]()
        budget = self._layer.capacity.max_step_tokens
        for seq, draft in wanted:
            self._sync(seq, draft)
            known = min(seq.computed, len(seq.tokens) - 1)
            start, end = draft.computed, min(known, draft.computed + budget)
            ids = self._pages(seq)[: -(-end // self._size)]
            own = set(ids[start // self._size :])
            to_draft = current.to_draft.pop(seq, 0)
            if end <= start or not own.isdisjoint(read) or not written.isdisjoint(ids):
                continue
            rows = self._rows(seq, start, end)
            if rows[0] < 0 and self._decodes(seq) and not to_draft:
                continue  # states are gone: not before it is drafted for
            read.update(ids)
            written.update(own)
            budget -= end - start
            samples = to_draft > 0 and end == len(seq.tokens) - 1
            tokens = seq.tokens[start + 1 : end + 1]
            parts.append(_Part(seq, draft, start, tokens, rows, samples))
            if samples:
                current.to_draft[seq] = to_draft
                draft.begin()
        return parts

    def _rows(self, seq: TokenSequence, start: int, end: int) -> array[int]:
        """Where the device has the states of these positions; -1 = nowhere."""
        first, positions = self._kept.get(seq, (0, range(0)))
        rows = (first + p - positions.start if p in positions else -1 for p in range(start, end))
        return array("i", rows)

    def _next_step(self, current: _Round) -> list[_Part]:
        """A further draft token for each sequence that wants one, from the layer's own state."""
        parts = []
        for seq, left in current.to_draft.items():
            draft = draft_of(seq)
            if left and isinstance(draft, MtpProposer) and draft.draft:
                start = len(seq.tokens) - 2 + len(draft.draft)
                row = array("i", [current.made[seq]])
                parts.append(_Part(seq, draft, start, [draft.draft[-1]], row, True))
        return parts

    def _write(self, writer: BatchWriter, part: _Part) -> None:
        """Write a sequence into the step."""
        seq, ids = part.seq, self._pages(part.seq)
        for page in ids[part.start // self._size : -(-part.end // self._size)]:
            self._page_tokens.pop(page, None)
        groups = zip(seq.caches, self._layer.capacity.groups, strict=True)
        caches = [_cache(cache, group, part) for cache, group in groups]
        columns = {"hidden_row": part.hidden_rows}
        first = writer.sequence(part.tokens, part.start, caches, columns=columns)
        part.last = first + len(part.tokens) - 1
        if part.samples:
            writer.row(part.last, seq.request.sampling, uniform(seq.stream, part.end + 1))

    def _pages(self, seq: TokenSequence) -> Sequence[int]:
        cache = seq.caches[self._group]
        assert isinstance(cache, PageList)
        return cache.ids


def _cache(cache: Cache, group: CacheGroup, part: _Part) -> Cache:
    """A sequence's pages up to the part's end; its state and a page of a window, which the layer
    leaves alone."""
    if isinstance(cache, StateSlot):
        return StateSlot(cache.write if part.start else -1, cache.write)
    if group.window is not None:
        return PageList(cache.ids[-1:], -(-part.end // group.page_size) - 1)
    return PageList(cache.ids[: -(-part.end // group.page_size)], cache.first)
