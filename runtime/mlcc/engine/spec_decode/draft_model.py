"""A draft model: a smaller model's next tokens are guesses of the larger one's.

As in Leviathan et al. (2023), but for how guesses are judged: both models draw the token of a
position with the same number, so that where their distributions are alike they say the same, and
what is said is the larger one's in any case (`verify.py`).

It keeps its cache in pages of the same ids as the larger model's: whoever shares a prompt shares
both. Its pages hold what it has computed itself, which may lag behind; nothing here changes an
answer. It builds batches and reads results, as the engine does, and touches no device: between two
steps of the engine a driver runs those of the draft, one by one (`mlcc.model.driver`).
"""

from __future__ import annotations

from array import array
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

from mlcc.engine.batch.batch import Batch, Cache, Capacity, PageList, Result
from mlcc.engine.batch.batch_writer import BatchWriter
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
_RARELY = 64
"""Steps after which a sequence for which drafts are not worth their time tries one again; twice as
many after each that fails."""
_MOST_RARELY = 1024


@dataclass(eq=False, slots=True)
class ModelProposer:
    """Of one sequence: a `Proposer` whose guesses are made before they are asked for."""

    tokens: array[int]
    free: bool = False
    origin: str = ORIGIN
    at: int = -1
    """Known tokens behind which the guesses are."""
    draft: list[int] = field(default_factory=list)
    computed: int = 0
    """Tokens, guesses behind the known ones among them, of which its pages hold something."""
    holder: object = None
    """The sequence's caches for which that was found."""
    noted: int = 0
    """Whole pages of known tokens that were noted as the draft's."""
    idle: int = 0
    """Steps in which no guess was worth its time, and after how many one is made all the same."""
    pause: int = _RARELY

    def propose(self, most: int) -> Proposal | None:
        """What was drafted behind the tokens that are known now."""
        if self.at != len(self.tokens) or not self.draft:
            return None
        return Proposal(self.draft[:most], ORIGIN)

    def count(self, worth: int) -> int:
        """Guesses to make where so many are worth their time; now and then one where none is, to
        learn whether that still holds."""
        if worth:
            return worth
        self.idle += 1
        return 1 if self.idle >= self.pause else 0

    def begin(self) -> None:
        """Guesses are made now."""
        rare = self.idle >= self.pause
        self.idle, self.pause = 0, min(2 * self.pause, _MOST_RARELY) if rare else _RARELY
        self.at = len(self.tokens)


@dataclass(slots=True)
class _Part:
    """A sequence's share of a draft step."""

    seq: TokenSequence
    draft: ModelProposer
    tokens: Sequence[int]
    samples: bool


class DraftModel:
    """What a draft model is to an engine: its bounds, and where its cache lies in the pools."""

    def __init__(self, capacity: Capacity, target: Capacity) -> None:
        """Raises UnsupportedError unless the two can share pages."""
        self.capacity = capacity
        self.group = shared_group(capacity.groups, target.groups)
        """The larger model's group, whose page ids are the draft's too."""
        if min(capacity.pools) < (pages := target.pools[self.group]):
            raise UnsupportedError(
                f"the draft model has {min(capacity.pools)} pages and the model {pages}; a draft "
                "needs as many: lower --kv-pages, or give more --memory"
            )
        self.cost = StepCost()

    def open(
        self, request: Request, tokens: array[int], tree: RadixTree, scope: Hashable
    ) -> ModelProposer:
        """What `guesses.Speculator` opens for a request."""
        return ModelProposer(tokens)


class DraftRunner:
    """The steps of a draft model, between two of the engine."""

    def __init__(self, model: DraftModel, speculator: Speculator, pools: CacheManager) -> None:
        self._model, self._speculator, self._pools = model, speculator, pools
        self._size = pools.groups[model.group].page_size
        self._noted: dict[int, tuple[int, bytes]] = {}
        """Of pages that the draft has computed as a whole: their number, and their tokens."""
        self._wanted: dict[TokenSequence, int] | None = None
        """How many guesses of each sequence are still to be made; None = no round has begun."""
        self._claimed: list[TokenSequence] = []
        """Sequences that were given pages for guesses."""
        self._flying: list[_Part] = []

    def plan(self, running: Sequence[TokenSequence], into: memoryview | None) -> Batch | None:
        """The next step of the draft before the engine's; None = the guesses are made."""
        if self._wanted is None:
            self._begin(running)
            parts = self._first()
        else:
            parts = [
                _Part(seq, draft, [draft.draft[-1]], True)
                for seq, left in self._wanted.items()
                if left and (draft := draft_of(seq)) is not None and draft.draft
            ]
        if not parts:
            return None
        writer = BatchWriter(self._model.capacity.layout, into)
        for part in sorted(parts, key=lambda part: len(part.tokens) > 1):
            self._write(writer, part)
        self._flying = sorted(parts, key=lambda part: len(part.tokens) > 1)
        return writer.finish()

    def commit(self, result: Result, seconds: float | None) -> None:
        """Take the draft's tokens."""
        assert self._wanted is not None
        tokens = iter(result.tokens)
        for part in self._flying:
            part.draft.computed += len(part.tokens)
            if part.samples:
                part.draft.draft.append(int(next(tokens)))
                self._wanted[part.seq] -= 1
        if all(len(part.tokens) == 1 for part in self._flying):
            self._speculator.budget.spend(seconds)  # catching up with a prompt pays for all guesses
            self._model.cost.took(len(self._flying), seconds)
        self._flying = []

    def end(self, chunks: Sequence[tuple[TokenSequence, int]]) -> None:
        """The engine knows its next step: what was taken for guesses that it does not try is given
        back."""
        counts = dict(chunks)
        for seq in self._claimed:
            if not seq.finished:
                self._pools.trim(seq.caches, seq.computed + counts.get(seq, 0))
        self.forget()

    def forget(self) -> None:
        """No round is begun, and no step in flight."""
        self._wanted, self._claimed, self._flying = None, [], []

    def _begin(self, running: Sequence[TokenSequence]) -> None:
        """Whose next tokens are guessed, and how many."""
        self._wanted = {}
        drafts = [(seq, draft) for seq in running if (draft := draft_of(seq)) is not None]
        for seq, draft in drafts:  # what lies behind was given back, and is gone
            draft.computed = min(draft.computed, seq.computed)
            draft.noted = min(draft.noted, draft.computed // self._size)
        decoding = [(seq, draft) for seq, draft in drafts if self._decodes(seq)]
        if not decoding:
            return
        speculator, model = self._speculator, self._model
        speculator.begin(len(decoding))
        # until both were measured, a draft is taken for a quarter of the model
        ratio = model.cost.time / speculator.cost.time if speculator.cost.time else 0
        speculator.draft_share = (ratio or 0.25) / len(decoding)
        for seq, draft in decoding[: min(model.capacity.max_rows, model.capacity.max_batch)]:
            room = min(seq.limit, model.capacity.context) - len(seq.tokens) - 1
            assert seq.draft_state is not None
            most = min(speculator.longest, room)
            count = seq.draft_state.count(most) if most > 0 else 0
            if count > 0:
                self._recall(seq, draft)
                claimed = self._pools.claim(seq.caches, seq.computed, 1 + count) - 1
                self._claimed.append(seq)
                self._wanted[seq] = max(0, claimed)

    def _decodes(self, seq: TokenSequence) -> bool:
        """Whether its next tokens may be guessed now."""
        said = len(seq.tokens) > seq.prompt_tokens
        return said and not seq.pending and not seq.draft and seq.remaining == 1

    def _recall(self, seq: TokenSequence, draft: ModelProposer) -> None:
        """Find what its pages hold of the draft's: of guesses those that were right; where it got
        other pages, those that the draft computed for somebody else."""
        tokens, size, ids = seq.tokens, self._size, self._pages(seq)
        parts = [tokens[at : at + size].tobytes() for at in range(0, len(tokens) - size, size)]
        if draft.holder is not seq.caches:
            draft.holder, draft.noted, draft.draft = seq.caches, 0, []
            for page, known in zip(ids, enumerate(parts), strict=False):
                if self._noted.get(page) != known:
                    break
                draft.noted += 1
            draft.computed = draft.noted * size
        right = draft.at
        for guess, token in zip(draft.draft, tokens[draft.at :], strict=False):
            if guess != token:
                break
            right += 1
        if draft.draft:
            draft.computed = min(draft.computed, right)
        draft.computed = min(draft.computed, seq.computed)
        draft.at, draft.draft = -1, []
        for number in range(draft.noted, draft.computed // size):
            self._noted[ids[number]] = number, parts[number]
            draft.noted = number + 1

    def _first(self) -> list[_Part]:
        """The step in which sequences catch up, and those that have get their first guess."""
        assert self._wanted is not None
        written, parts = set[int](), list[_Part]()
        budget = self._model.capacity.max_step_tokens
        for seq, wanted in [*self._wanted.items()]:
            draft = draft_of(seq)
            assert draft is not None
            end = min(len(seq.tokens), draft.computed + budget)
            complete = wanted > 0 and end == len(seq.tokens)
            if not complete:  # it goes on with that in the next round
                end = min(end, seq.computed)
                draft.idle = draft.pause
            pages = self._pages(seq)[draft.computed // self._size : -(-end // self._size)]
            if not complete or not written.isdisjoint(pages):
                del self._wanted[seq]
            if end > draft.computed and written.isdisjoint(pages):
                written.update(pages)
                budget -= end - draft.computed
                parts.append(_Part(seq, draft, seq.tokens[draft.computed : end], complete))
                if complete:
                    draft.begin()
        return parts

    def _write(self, writer: BatchWriter, part: _Part) -> None:
        """A sequence into the step."""
        seq, draft, count = part.seq, part.draft, len(part.tokens)
        end = draft.computed + count
        ids, caches = self._pages(seq), list[Cache]()
        for page in ids[draft.computed // self._size : -(-end // self._size)]:
            self._noted.pop(page, None)
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
    """The group of the larger model whose pages are the draft's as well: one that keeps all
    tokens. Raises UnsupportedError if there is none that fits."""
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
    """Of a sequence, if a draft model guesses for it."""
    found = seq.draft_state.proposer if seq.draft_state is not None else None
    return found if isinstance(found, ModelProposer) else None
