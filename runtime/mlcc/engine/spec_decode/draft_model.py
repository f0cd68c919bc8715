"""Draft model: a smaller model that drafts tokens for a larger one.

As in Leviathan et al. (2023), except for verification: both models draw the token of a position
with the same random number, so where their distributions agree they sample the same token, and the
output is always the larger model's (`verifier.py`).

The draft model's cache uses the page ids of the larger model, so sequences that share a prefix
share both. Its pages may lag behind; nothing here changes an output. It builds batches and reads
results, as the engine does, and touches no device: between two steps of the engine a driver runs
those of the draft model, one by one (`mlcc.model.driver`).
"""

from __future__ import annotations

from array import array
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

from mlcc.engine.batch.batch import Batch, BatchWriter, Cache, Capacity, PageList, Result
from mlcc.engine.batch.random import uniform
from mlcc.engine.batch.tables import CacheGroup
from mlcc.engine.kv_cache.cache_manager import CacheManager
from mlcc.engine.kv_cache.radix_tree import RadixTree, first_seen
from mlcc.engine.request import Request
from mlcc.engine.sequence import TokenSequence
from mlcc.engine.spec_decode.budget import StepCost
from mlcc.engine.spec_decode.speculator import Proposal, Speculator
from mlcc.errors import UnsupportedError

ORIGIN = "draft"
_RETRY_AFTER = 64
"""Tokens after which a sequence whose drafts do not pay tries again; doubled after each failure."""
_MAX_RETRY_AFTER = 1024


@dataclass(eq=False, slots=True)
class ModelProposer:
    """A `Proposer` of one sequence, whose drafts are made before they are proposed."""

    tokens: array[int]
    free: bool = False
    origin: str = ORIGIN
    draft_start: int = -1
    """Known tokens before the draft."""
    draft: list[int] = field(default_factory=list)
    computed: int = 0
    """Tokens, draft tokens included, that the draft model has computed into its pages."""
    caches_seen: object = None
    """The sequence's caches for which `computed` holds."""
    recorded: int = 0
    """Whole pages of known tokens recorded as computed by the draft model."""
    drafted_at: int = field(init=False)
    """Known tokens when the last draft was made, or at first."""
    retry_after: int = _RETRY_AFTER
    """Tokens after it, of which none was worth a draft, after which one is made anyway."""

    def __post_init__(self) -> None:
        self.drafted_at = len(self.tokens)

    def propose(self, most: int) -> Proposal | None:
        """The draft after the tokens that are known now."""
        if self.draft_start != len(self.tokens) or not self.draft:
            return None
        return Proposal(self.draft[:most], self.origin)

    def num_to_draft(self, worthwhile: int) -> int:
        """`worthwhile`, or now and then 1 if that is 0, to learn whether drafting pays by now."""
        return worthwhile or int(self._is_due)

    @property
    def _is_due(self) -> bool:
        return len(self.tokens) - self.drafted_at >= self.retry_after

    def begin(self) -> None:
        """A draft begins."""
        longer = min(2 * self.retry_after, _MAX_RETRY_AFTER)
        self.retry_after = longer if self._is_due else _RETRY_AFTER
        self.draft_start = self.drafted_at = len(self.tokens)


@dataclass(slots=True)
class _Part:
    """A sequence's part of a draft step."""

    seq: TokenSequence
    draft: ModelProposer
    tokens: Sequence[int]
    samples: bool


class DraftModel:
    """Capacity of a draft model, and the cache group of the larger model whose page ids it uses."""

    def __init__(self, capacity: Capacity, target: Capacity) -> None:
        """Raises UnsupportedError unless the two models can share pages."""
        self.capacity = capacity
        self.group = shared_group(capacity.groups, target.groups)
        """The larger model's group that shares its page ids."""
        if min(capacity.pools) < (pages := target.pools[self.group]):
            raise UnsupportedError(
                f"the draft model has {min(capacity.pools)} pages and the model {pages}; a draft "
                "needs as many: lower --kv-pages, or give more --memory"
            )
        self.cost = StepCost()

    def open(
        self, request: Request, tokens: array[int], tree: RadixTree, scope: Hashable
    ) -> ModelProposer:
        """Opens a proposer, for `Speculator`."""
        return ModelProposer(tokens)

    def runner(self, speculator: Speculator, pools: CacheManager) -> DraftRunner:
        """Plans the draft model's steps."""
        return DraftRunner(self, speculator, pools)


class DraftRunner:
    """The steps of a draft model, between two steps of the engine."""

    def __init__(self, model: DraftModel, speculator: Speculator, pools: CacheManager) -> None:
        self._model, self._speculator, self._pools = model, speculator, pools
        self._size = pools.groups[model.group].page_size
        self._page_tokens: dict[int, tuple[int, bytes]] = {}
        """Pages that the draft model has computed as a whole: page number in the sequence, and its
        tokens."""
        self._to_draft: dict[TokenSequence, int] | None = None
        """Draft tokens still to make, by sequence; None = no round has begun."""
        self._claimed: list[TokenSequence] = []
        """Sequences with pages allocated for draft tokens."""
        self._in_flight: list[_Part] = []

    def plan(self, running: Sequence[TokenSequence], into: memoryview | None) -> Batch | None:
        """The draft model's next step before the engine's; None = all drafts are made."""
        if self._to_draft is None:
            self._start_round(running)
            parts = self._first_step()
        else:
            parts = [
                _Part(seq, draft, [draft.draft[-1]], True)
                for seq, left in self._to_draft.items()
                if left and (draft := draft_of(seq)) is not None and draft.draft
            ]
        if not parts:
            return None
        writer = BatchWriter(self._model.capacity.layout, into)
        for part in sorted(parts, key=lambda part: len(part.tokens) > 1):
            self._write(writer, part)
        self._in_flight = sorted(parts, key=lambda part: len(part.tokens) > 1)
        return writer.finish()

    def commit(self, result: Result, seconds: float | None) -> None:
        """Take the result of a draft step."""
        assert self._to_draft is not None
        tokens = iter(result.tokens)
        for part in self._in_flight:
            part.draft.computed += len(part.tokens)
            if part.samples:
                part.draft.draft.append(int(next(tokens)))
                self._to_draft[part.seq] -= 1
        if all(len(part.tokens) == 1 for part in self._in_flight):
            self._speculator.budget.spend(seconds)  # prefill of the draft model is not charged
            self._model.cost.observe(len(self._in_flight), seconds)
        self._in_flight = []

    def finish_round(self, chunks: Sequence[tuple[TokenSequence, int]]) -> None:
        """The engine's next step is planned: free the pages of draft tokens that it does not
        verify."""
        counts = dict(chunks)
        for seq in self._claimed:
            if not seq.finished:
                self._pools.trim(seq.caches, seq.computed + counts.get(seq, 0))
        self.reset()

    def reset(self) -> None:
        """No round is begun, and no step is in flight."""
        self._to_draft, self._claimed, self._in_flight = None, [], []

    def forget(self) -> None:
        """`reset`, and the draft model's pages may hold anything."""
        self.reset()
        self._page_tokens.clear()

    def _start_round(self, running: Sequence[TokenSequence]) -> None:
        """Choose the sequences to draft for, and how many tokens."""
        self._to_draft = {}
        drafts = [(seq, draft) for seq in running if (draft := draft_of(seq)) is not None]
        for seq, draft in drafts:  # pages after it were freed
            draft.computed = min(draft.computed, seq.computed)
            draft.recorded = min(draft.recorded, draft.computed // self._size)
        decoding = [(seq, draft) for seq, draft in drafts if self._decodes(seq)]
        if not decoding:
            return
        speculator, model = self._speculator, self._model
        speculator.begin_step(len(decoding))
        # until both are measured, a draft step is assumed to cost a quarter of a step
        ratio = model.cost.time / speculator.cost.time if speculator.cost.time else 0
        speculator.draft_cost = (ratio or 0.25) / len(decoding)
        for seq, draft in decoding[: min(model.capacity.max_rows, model.capacity.max_batch)]:
            room = min(seq.limit, model.capacity.context) - len(seq.tokens) - 1
            assert seq.draft_state is not None
            most = min(speculator.max_draft, room)
            count = seq.draft_state.num_to_draft(most) if most > 0 else 0
            if count > 0:
                self._sync(seq, draft)
                claimed = self._pools.claim(seq.caches, seq.computed, 1 + count) - 1
                self._claimed.append(seq)
                self._to_draft[seq] = max(0, claimed)

    def _decodes(self, seq: TokenSequence) -> bool:
        """Whether tokens may be drafted after this sequence now."""
        has_output = len(seq.tokens) > seq.prompt_tokens
        return has_output and not seq.pending and not seq.draft and seq.remaining == 1

    def _sync(self, seq: TokenSequence, draft: ModelProposer) -> None:
        """Update which pages hold the draft model's cache: drop rejected draft tokens; if the
        sequence got other pages, look up those that the draft model has computed for another."""
        tokens, size, ids = seq.tokens, self._size, self._pages(seq)
        parts = [tokens[at : at + size].tobytes() for at in range(0, len(tokens) - size, size)]
        if draft.caches_seen is not seq.caches:
            draft.caches_seen, draft.recorded, draft.draft = seq.caches, 0, []
            for page, known in zip(ids, enumerate(parts), strict=False):
                if self._page_tokens.get(page) != known:
                    break
                draft.recorded += 1
            draft.computed = draft.recorded * size
        accepted = draft.draft_start
        for draft_token, token in zip(draft.draft, tokens[draft.draft_start :], strict=False):
            if draft_token != token:
                break
            accepted += 1
        if draft.draft:
            draft.computed = min(draft.computed, accepted)
        draft.computed = min(draft.computed, seq.computed)
        draft.draft_start, draft.draft = -1, []
        for number in range(draft.recorded, draft.computed // size):
            self._page_tokens[ids[number]] = number, parts[number]
            draft.recorded = number + 1

    def _first_step(self) -> list[_Part]:
        """The step in which sequences catch up; those that have get their first draft token."""
        assert self._to_draft is not None
        read, written, parts = set[int](), set[int](), list[_Part]()
        budget = self._model.capacity.max_step_tokens
        for seq, to_draft in [*self._to_draft.items()]:
            draft = draft_of(seq)
            assert draft is not None
            end = min(len(seq.tokens), draft.computed + budget)
            complete = to_draft > 0 and end == len(seq.tokens)
            if not complete:  # it continues in the next round
                end = min(end, seq.computed)
                draft.drafted_at = len(seq.tokens) - draft.retry_after
            ids = self._pages(seq)[: -(-end // self._size)]
            own = set(ids[draft.computed // self._size :])
            alone = own.isdisjoint(read) and written.isdisjoint(ids)
            if not complete or not alone:
                del self._to_draft[seq]
            if end > draft.computed and alone:
                read.update(ids)
                written.update(own)
                budget -= end - draft.computed
                parts.append(_Part(seq, draft, seq.tokens[draft.computed : end], complete))
                if complete:
                    draft.begin()
        return parts

    def _write(self, writer: BatchWriter, part: _Part) -> None:
        """Write a sequence into the step."""
        seq, draft, count = part.seq, part.draft, len(part.tokens)
        end = draft.computed + count
        ids, caches = self._pages(seq), list[Cache]()
        for page in ids[draft.computed // self._size : -(-end // self._size)]:
            self._page_tokens.pop(page, None)
        for group in self._model.capacity.groups:
            first = first_seen(draft.computed, group) // group.page_size
            caches.append(PageList(array("i", ids[first : -(-end // group.page_size)]), first))
        first = writer.sequence(part.tokens, draft.computed, caches)
        if part.samples:
            writer.row(first + count - 1, seq.request.sampling, uniform(seq.stream, end))

    def _pages(self, seq: TokenSequence) -> Sequence[int]:
        cache = seq.caches[self._model.group]
        assert isinstance(cache, PageList)
        return cache.ids


def shared_group(draft: Sequence[CacheGroup], target: Sequence[CacheGroup]) -> int:
    """The group of the larger model whose page ids the draft model can use: one that keeps all
    tokens. Raises UnsupportedError if there is none."""
    sizes = {group.page_size for group in draft}
    if any(not group.has_pages for group in draft) or len(sizes) != 1:
        raise UnsupportedError(
            "the draft model keeps states, or pages of several sizes, and a draft shares the pages "
            "of the model; choose a draft with attention alone, or --speculate lookup"
        )
    for g, group in enumerate(target):
        if group.kind == "paged" and group.page_size in sizes:
            return g
    raise UnsupportedError(
        f"the draft model has pages of {sizes.pop()} tokens, and the model has none of that size "
        "that keep all tokens; compile both with the same mlcc, or choose --speculate lookup"
    )


def draft_of(seq: TokenSequence) -> ModelProposer | None:
    """The sequence's `ModelProposer`, if it has one."""
    found = seq.draft_state.proposer if seq.draft_state is not None else None
    return found if isinstance(found, ModelProposer) else None
