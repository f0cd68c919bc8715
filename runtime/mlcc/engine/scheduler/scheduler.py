"""The scheduler: which sequences run in the next step, and how many tokens of each.

Iteration-level scheduling (Orca, Yu et al., 2022) over paged memory with preemption by
recomputation (vLLM, Kwon et al., 2023) and chunked prefill (Sarathi-Serve, Agrawal et al., 2024).
It builds no tables (`packing.py`) and reads no results (`output_processor.py`).

`waiting_queue.py` orders admission and gives each sequence its rank. Pages go by rank among running
sequences: a sequence can always take pages from the last one, a rank never changes, and so every
sequence finishes. Within the token budget of a step, decoding sequences come before prompts.

`PrefixReuse` decides which sequences share cached prefixes, and when computed blocks enter the
prefix cache (`radix_tree.py`). `DraftPlanner` adds draft tokens to a step and rolls back pages and
states of rejected ones. Draft tokens get only what everything else leaves of a step and of the
pages: they may be wrong, so no request waits or is preempted for them.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Hashable, Iterable, Sequence
from itertools import islice
from operator import add, attrgetter, le, sub

from mlcc.engine.batch.adjust_tables import AdjustLayout
from mlcc.engine.batch.batch import Capacity, StateSlot
from mlcc.engine.events import AnswerTimes
from mlcc.engine.kv_cache.cache_manager import CacheManager
from mlcc.engine.kv_cache.radix_tree import Hit
from mlcc.engine.lora import Adapter, AdapterSlots
from mlcc.engine.media_embeddings import MediaEmbeddings
from mlcc.engine.scheduler.budgets import SHORT_PROMPT, PrefillAllowance, PrefillBudget, StepBudget
from mlcc.engine.scheduler.isolation import Isolation
from mlcc.engine.scheduler.waiting_queue import WaitingQueue
from mlcc.engine.sequence import TokenSequence
from mlcc.engine.spec_decode.speculator import Speculator


class DraftPlanner:
    """Draft tokens in the steps of one scheduler. speculator: None = no speculation. max_rows: of
    a step."""

    def __init__(self, pools: CacheManager, speculator: Speculator | None, max_rows: int) -> None:
        self._pools, self._speculator, self._max_rows = pools, speculator, max_rows
        self._has_rows = False
        """Whether the step being planned has rows for draft tokens."""
        self.waited = False
        """Whether a sequence was left out of the step being planned, to draft after its token in
        flight."""

    def begin_step(self, decodes: int, running: int) -> None:
        """Begin a step with this many decoding sequences of all that run."""
        self.waited, self._has_rows = False, running < self._max_rows
        if self._speculator is not None:
            self._speculator.begin_step(decodes)

    def must_wait(self, seq: TokenSequence) -> bool:
        """Whether to wait for the sequence's token in flight, because tokens may be drafted after
        it."""
        state = seq.draft_state if self._has_rows and seq.pending else None
        waits = state is not None and state.should_wait()
        self.waited |= waits
        return waits

    def may_draft(self, seqs: Sequence[TokenSequence]) -> bool:
        """Whether the next step of these decoding sequences may have draft tokens."""
        if self._speculator is None:
            return False
        self.begin_step(len(seqs), len(seqs))
        if self._speculator.paused or not self._has_rows:
            return False
        known = [(seq, self._speculator.max_draft) for seq in seqs if not seq.pending]
        _plan_drafts(self._speculator, known, self._max_rows - len(seqs))
        return any(
            s.draft_state is not None and s.draft_state.may_draft(bool(s.pending)) for s in seqs
        )

    def is_prefill(self, seq: TokenSequence) -> bool:
        """Whether the sequence's next tokens are prompt, or recomputed after preemption. Tokens
        recomputed after a rejected draft, in a model with states, are neither."""
        follows = 0
        if self._speculator is not None and seq.draft_state is not None and _output_tokens(seq):
            follows = self._speculator.max_draft
        return seq.remaining > 1 + follows

    def add_drafts(
        self, chunks: Sequence[tuple[TokenSequence, int]], budget: StepBudget
    ) -> list[tuple[TokenSequence, int]]:
        """Append draft tokens to the chunks that end with a sampled token."""
        if self._speculator is not None:
            room = [(seq, _draft_room(seq, count, budget)) for seq, count in chunks]
            _plan_drafts(self._speculator, room, min(budget.rows, budget.tokens))
        return [(seq, count + self._draft(seq, count, budget)) for seq, count in chunks]

    def _draft(self, seq: TokenSequence, count: int, budget: StepBudget) -> int:
        """Number of draft tokens added to a sequence."""
        if seq.draft_state is None or (most := _draft_room(seq, count, budget)) <= 0:
            return 0
        draft = budget.fit_draft(seq, seq.draft_state.propose(most))
        if not draft or not self._pools.fork(seq.caches):
            return 0
        granted = self._pools.claim(seq.caches, seq.computed, count + len(draft))
        seq.draft, seq.computed_before_draft = tuple(draft[: granted - count]), seq.computed
        budget.take_draft(seq)
        return len(seq.draft)

    def settle(self, seq: TokenSequence, accepted: int) -> None:
        """Verification is done and the sequence continues. Frees what rejected tokens used: pages,
        and for states the whole step."""
        if not seq.draft:  # preempted meanwhile
            return
        if accepted == len(seq.draft):
            self._pools.advance(seq.caches)
        elif self._pools.tree.has_states:
            seq.computed = seq.computed_before_draft
        seq.draft = ()
        self._pools.trim(seq.caches, seq.computed)


def _output_tokens(seq: TokenSequence) -> int:
    """Known output tokens."""
    return len(seq.tokens) - seq.prompt_tokens


def _draft_room(seq: TokenSequence, count: int, budget: StepBudget) -> int:
    """Draft tokens that may follow a chunk of `count` tokens."""
    if seq.pending or count != seq.remaining or not _output_tokens(seq):
        return 0
    return min(seq.limit - len(seq.tokens) - 1, budget.rows, budget.tokens)


def _plan_drafts(
    speculator: Speculator, room: Sequence[tuple[TokenSequence, int]], most: int
) -> None:
    """Plan which draft tokens a step takes, at most `most`. room: sequences, and most of each."""
    states = [(seq.draft_state, own) for seq, own in room if seq.draft_state is not None]
    for state, _ in states:
        state.learn()
    speculator.plan((state.offer(own) for state, own in states if own > 0), most)


class PrefixReuse:
    """Sharing of cached prefixes. prefix_cache: False = only sampling groups share their prompt.

    cached_tokens: prompt tokens found in the prefix cache instead of being computed.
    """

    def __init__(self, pools: CacheManager, prefix_cache: bool) -> None:
        self.cached_tokens = 0
        self._pools = pools
        self._prefix_cache = prefix_cache

    def find(self, seq: TokenSequence) -> Hit | None:
        """The cached prefix of a sequence."""
        scope = self.scope(seq)
        whole = scope is None or seq.prompt_logprobs is not None
        return None if whole else self._pools.find(scope, seq.prefix_keys)

    def uncached(self, seq: TokenSequence) -> int:
        """Tokens that a waiting sequence has to compute. Only long prompts are looked up, and only
        once."""
        if seq.uncached < 0:
            hit = self.find(seq) if seq.remaining > SHORT_PROMPT else None
            seq.uncached = seq.remaining - (0 if hit is None else hit.tokens)
        return seq.uncached

    def take(self, seq: TokenSequence, hit: Hit | None) -> None:
        """Start a sequence with its cached prefix."""
        if hit is not None:
            self._pools.take(seq.caches, hit)
            seq.computed = hit.tokens
            if seq.cached is None:  # not counted before a preemption
                seq.cached = min(seq.computed, seq.prompt_tokens)
                self.cached_tokens += seq.cached

    def step_planned(self, chunks: Iterable[tuple[TokenSequence, int]]) -> None:
        """Store the prompts of a planned step, which later steps may share: whole blocks, and for a
        sampling group the prompt to its last token."""
        for seq, count in chunks:
            group = seq.sampling_group
            if group is not None and not group.computed and seq.computed >= seq.prompt_tokens:
                group.computed = True
                self.store(seq, ended=len(group.members) > 1)
            elif not seq.draft and (count > 1 or seq.computed <= seq.prompt_tokens):
                block = self._pools.tree.block
                if (seq.computed - count) // block < seq.computed // block:
                    self.store(seq, ended=False)

    def store(self, seq: TokenSequence, ended: bool) -> None:
        """Store the computed tokens of a sequence in the prefix cache."""
        if (scope := self.scope(seq)) is not None:
            self._pools.insert(scope, seq.prefix_keys[: seq.computed], seq.caches, ended)

    def scope(self, seq: TokenSequence) -> Hashable | None:
        """Scope in which the sequence's prefixes are shared; None = not shared."""
        if self._prefix_cache:
            return seq.scope
        group = seq.request.sampling_group
        return (*seq.scope, group) if group else None


Chunk = tuple[TokenSequence, int]
"""A sequence and the number of its next tokens to compute, draft tokens included."""


class Scheduler:
    """The waiting and the running sequences."""

    def __init__(
        self,
        capacity: Capacity,
        pools: CacheManager,
        prefill_budget: PrefillBudget,
        prefix_cache: bool = True,
        speculator: Speculator | None = None,
        adapters: AdapterSlots | None = None,
        media: MediaEmbeddings | None = None,
    ) -> None:
        self.waiting = WaitingQueue()
        self.running: list[TokenSequence] = []
        """In order of rank, the highest priority first."""
        self.changes = 0
        """Number of times a sequence was added or removed."""
        self.preemptions = 0
        self.times = AnswerTimes()
        self.isolation = Isolation()
        """Limits steps to suspects after a failure."""
        self._foreground_only = False
        """Whether background requests stand aside in the step planned last."""
        self._capacity = capacity
        self._pools = pools
        self._prefill_budget = prefill_budget
        self.prefix_reuse = PrefixReuse(pools, prefix_cache)
        self._adapters = adapters or AdapterSlots(0)
        self._media = media or MediaEmbeddings(0, capacity.vocab_size)
        self.draft_planner = DraftPlanner(pools, speculator, capacity.max_rows)
        """Adds draft tokens to steps."""
        self.decode_only = False
        """Whether the step planned last has no prompt tokens."""
        self.num_decoding = 0
        """Decoding sequences when it was planned, in the step or waited for."""
        self._paged = [group.has_pages for group in pools.groups]
        adjusted = AdjustLayout.of(capacity.layout, capacity.vocab_size)
        self._most_adjust_words = adjusted.words - adjusted.rows.end
        self._step_budget = StepBudget(0, 0, 0)
        """What is left of the step being planned."""
        # With no more sequences than tokens and rows in a step, each can move in every step.
        self._max_running = min(capacity.max_batch, capacity.max_step_tokens, capacity.max_rows)

    @property
    def is_settled(self) -> bool:
        """Whether the set of running sequences stays the same until one is added or removed, or
        pages run out."""
        waits = self.waiting.has_foreground if self._foreground_only else bool(self.waiting)
        return not waits or len(self.running) >= self._max_running

    def add(self, seq: TokenSequence) -> None:
        self.waiting.enter(seq)
        self.changes += 1

    @property
    def adapters(self) -> set[Adapter]:
        """Adapters that stay in their slots now: of running sequences, and of those with a step in
        flight."""
        waiting = (seq for seq in self.waiting if seq.pending)
        return {s.adapter for s in (*self.running, *waiting) if s.adapter is not None}

    @property
    def has_slot(self) -> bool:
        """Whether one more sequence may run."""
        return not self.isolation.active and len(self.running) < self._max_running

    def add_running(self, seq: TokenSequence, computed: int) -> None:
        """Add a sequence whose pages hold tokens computed elsewhere."""
        self.changes += 1
        self.waiting.enter(seq)
        self.waiting.remove(seq)
        insort(self.running, seq, key=attrgetter("rank"))
        seq.computed = computed

    def remove(self, seq: TokenSequence) -> None:
        """Remove a finished sequence and free its pages."""
        self.changes += 1
        if seq in self.running:
            self.running.remove(seq)
        else:
            self.waiting.remove(seq)
        self.waiting.leave(seq)
        self._release(seq)

    def rebuild(self, seqs: Sequence[TokenSequence]) -> None:
        """All these unfinished sequences wait and hold nothing, whatever the state was."""
        self.changes += 1
        self.running.clear()
        self.waiting.rebuild(seqs)

    def preempt_all(self) -> None:
        """Preempt every running sequence. No step is in flight."""
        while self.running:
            self._preempt_last()

    def schedule(self, step: int) -> list[Chunk]:
        """The chunks of `step`; empty if nothing can run before a commit.

        Allocates pages and preempts for them, but leaves `computed` to packing.
        """
        self._media.step = step
        for seq in self.running:
            if seq.media:
                self._media.hold(seq.media)
        self._set_background_aside()
        decodes = sum(1 for seq in self.running if seq.remaining == 1 and seq.runnable(step))
        self.num_decoding = decodes
        whole = self._capacity.max_step_tokens - decodes
        self.draft_planner.begin_step(decodes, len(self.running))
        allowance = self._prefill_budget.allowance(decodes, whole, self._prompts())
        chunks = self._fill(step, whole, allowance)
        if not chunks and (decodes or allowance.short_only):  # prompts need not wait then
            chunks = self._fill(step, whole, PrefillAllowance(whole))
        if chunks:
            prompts = [
                (count, seq.computed) for seq, count in chunks if self.draft_planner.is_prefill(seq)
            ]
            self.decode_only = not prompts
            chunks = self.draft_planner.add_drafts(chunks, self._step_budget)
            self.waiting.charge(chunks)
            self._prefill_budget.step_planned(len(chunks) - len(prompts), prompts)
        return chunks

    def _set_background_aside(self) -> None:
        """While other requests wait or run, preempt background requests, which hold the last ranks.
        What they have computed stays in the prefix cache as long as nothing needs its pages."""
        runs = bool(self.running) and not self.running[0].request.background
        foreground = runs or self.waiting.has_foreground
        self._foreground_only = foreground and not self.isolation.active
        while self._foreground_only and self.running and self.running[-1].request.background:
            self._preempt_last()

    def _may_start(self, seq: TokenSequence) -> bool:
        """Whether a waiting sequence may run in the step being planned."""
        aside = self._foreground_only and seq.request.background
        return not aside and not self._is_isolated(seq)

    def _is_isolated(self, seq: TokenSequence) -> bool:
        """Whether only other sequences may run, after a failure."""
        return self.isolation.active and not self.isolation.may_run(seq)

    def _prompts(self) -> list[int]:
        """Tokens left of each prompt that could run in this step."""
        eligible = filter(self._may_start, self.waiting)
        waiting = islice(eligible, self._max_running - len(self.running))
        lengths = [seq.remaining for seq in self.running if seq.remaining > 1]
        return [*lengths, *map(self.prefix_reuse.uncached, waiting)]

    def repeat_decodes(self, chunks: Sequence[Chunk]) -> None:
        """The same decoding sequences run one more step."""
        self.waiting.charge(chunks)
        self._prefill_budget.step_planned(len(chunks), [])

    def _fill(self, step: int, tokens: int, allowance: PrefillAllowance) -> list[Chunk]:
        """Fill a step: decoding sequences, and prompt chunks within the allowance. tokens: budget
        beside the decoding sequences."""
        chunks: list[Chunk] = []
        rows = self._capacity.max_rows - len(self.running)
        budget = self._step_budget = StepBudget(tokens, rows, self._most_adjust_words)
        index = 0
        while index < len(self.running):  # preemption shortens the list, from its end
            seq = self.running[index]
            index += 1
            if self._is_isolated(seq):
                continue
            if not seq.runnable(step) or self.draft_planner.must_wait(seq):
                continue
            prompt = seq.remaining > 1
            most = allowance.tokens(seq.computed, seq.remaining) if prompt else 1
            if not most or not budget.take_adjustments(seq):
                continue
            if not (chunk := self._chunk(seq, most)):
                continue
            count = self._allocate_or_preempt(seq, chunk)
            if prompt:
                allowance.spend(count, seq.computed)
                budget.take_prefill(seq, count)
            if count:
                chunks.append((seq, count))
        self._admit(chunks, allowance)
        return chunks

    def _admit(self, chunks: list[Chunk], allowance: PrefillAllowance) -> None:
        """Admit waiting sequences while slots, tokens and pages last. No sequence is overtaken
        because it needs many pages, and none is preempted: it may be in this step already. A
        sequence that waits for an adapter slot is overtaken by sequences without an adapter, and a
        long prompt that may not run now by short ones."""
        budget, plain, short = self._step_budget, False, False

        def eligible(seq: TokenSequence) -> bool:
            return (
                self._may_start(seq)
                and not (plain and seq.adapter)
                and not (short and self.prefix_reuse.uncached(seq) > SHORT_PROMPT)
            )

        while len(self.running) < self._max_running and budget.rows > 0:
            seq = self.waiting.first(eligible)
            if (
                seq is None
                or seq.pending
                or not allowance.tokens(0)
                or not budget.take_adjustments(seq)
            ):
                return
            if seq.adapter is not None and not self._adapters.on_device(seq.adapter, self.adapters):
                plain = True
                continue
            hit = self.prefix_reuse.find(seq)
            past = hit.tokens if hit is not None else 0
            seq.uncached = seq.remaining - past
            most = allowance.tokens(past, seq.uncached)
            if not most and seq.uncached > SHORT_PROMPT:
                short = True
                continue
            if not most or not self._fits(seq, hit):
                return
            self.waiting.remove(seq)
            budget.rows -= 1
            insort(self.running, seq, key=attrgetter("rank"))
            if seq.started is None:
                seq.started = self.times.clock()
            self.prefix_reuse.take(seq, hit)
            chunk = self._chunk(seq, most)
            count = self._claim(seq, chunk) if chunk else 0
            allowance.spend(count, seq.computed)
            budget.take_prefill(seq, count)
            if count:
                chunks.append((seq, count))

    def _chunk(self, seq: TokenSequence, most: int) -> int:
        """Number of next tokens to compute; 0 = images must be encoded first. In a model with
        states a chunk ends at the last whole block of the prompt, so that the state there can be
        cached."""
        count = min(seq.remaining, most)
        if seq.prompt_logprobs is not None:
            count = min(count, 1 + self._step_budget.rows)
        tree = self._pools.tree
        if tree.has_states and self.prefix_reuse.scope(seq) is not None:
            whole = (seq.prompt_tokens - 1) // tree.block * tree.block - seq.computed
            if 0 < whole < count:
                count = whole
        if seq.media:
            whole = self._media.rest_of_image(seq.media, seq.computed)
            if count < whole <= self._step_budget.tokens:  # beyond the allowance of prompts
                count = whole
            count = self._media.ready_tokens(seq.media, seq.computed, count)
        return count

    def _fits(self, seq: TokenSequence, hit: Hit | None) -> bool:
        """Whether the whole prompt fits beside what running sequences will soon need.

        An estimate that keeps preemption rare: one page each, and the rest of their prompts.
        """
        wanted = self._pools.missing(seq.caches, seq.planned)
        if hit is not None:
            wanted = list(map(sub, wanted, hit.reused_pages))
        for other in self.running:
            more = self._pools.missing(other.caches, other.planned)
            soon = [max(1, b) if p else b for b, p in zip(more, self._paged, strict=True)]
            wanted = list(map(add, wanted, soon))
        return all(map(le, wanted, self._pools.free_beside(hit)))

    def _allocate_or_preempt(self, seq: TokenSequence, want: int) -> int:
        """Allocate pages for up to `want` more tokens, preempting if needed. Returns how many
        fit."""
        while not (count := self._claim(seq, want)):
            if self.running[-1] is seq:
                return 0
            self._preempt_last()
        return count

    def _claim(self, seq: TokenSequence, want: int) -> int:
        """Allocate pages for up to `want` more tokens; returns how many fit, of an image that is
        seen both ways all or none."""
        count = self._pools.claim(seq.caches, seq.computed, want)
        if seq.media and count < want:
            fits = self._media.whole(seq.media, seq.computed, count)
            if fits < count:
                self._pools.trim(seq.caches, seq.computed + fits)
            return fits
        return count

    def _preempt_last(self) -> None:
        seq = self.running.pop()
        self._release(seq)
        self.waiting.put(seq)
        self.preemptions += 1

    def _release(self, seq: TokenSequence) -> None:
        """Free a sequence's pages. The prefix cache keeps their contents."""
        self.prefix_reuse.store(seq, ended=True)
        self._pools.release(seq.caches)
        seq.caches, seq.computed, seq.draft, seq.uncached = self._pools.empty(), 0, (), -1

    def check_integrity(self) -> None:
        """Raise AssertionError if order, pages or counts of the sequences disagree."""
        ranks = [seq.rank for seq in self.running]
        if ranks != sorted(ranks):
            raise AssertionError(f"running sequences are out of order: {ranks}")
        self.waiting.check_integrity(self.running)
        for seq in (*self.running, *self.waiting):
            if seq.finished or not self._holds_exactly(seq) or not 0 < seq.planned <= seq.limit:
                raise AssertionError(f"sequence {seq.request.id!r} is inconsistent: {seq}")
        if any(seq.computed for seq in self.waiting):
            raise AssertionError("a waiting sequence holds pages")
        self._pools.check_integrity(seq.caches for seq in self.running)

    def _holds_exactly(self, seq: TokenSequence) -> bool:
        """Whether the sequence holds exactly the pages that its computed tokens need."""
        for group, cache in zip(self._pools.groups, seq.caches, strict=True):
            if isinstance(cache, StateSlot):
                if (cache.write >= 0) != (seq.computed > 0):
                    return False
            elif cache.first + len(cache.ids) != -(-seq.computed // group.page_size):
                return False
        return True
