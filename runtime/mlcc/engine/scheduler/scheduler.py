"""Which sequences run in the next step, and how many tokens of each.

Iteration-level scheduling (Orca, Yu et al., 2022) over paged memory with preemption by
recomputation (vLLM, Kwon et al., 2023) and chunked prefill (Sarathi-Serve, Agrawal et al., 2024).
It builds no arrays (`packing.py`), reads no results (`engine.py`).

Who is let in next, and the rank of each, is said by `queue.py`. Among those that run, pages go by
rank: the first can always take them from the last, a rank never changes, and so nothing runs
forever. Within the token budget of a step decoding sequences come before prompts.

What sequences find of their prompts, computed by others, and what is kept of theirs.

The cache itself, a tree over pages, is `prefix.py`; here is who shares with whom, and when what was
computed is told to it.

Guesses in a step: a place for them behind the tokens that are known, and what becomes of pages
and states once it is known which were right.

They get what all else leaves of a step, and of the pages: whoever waits is not to wait longer, and
nobody gives way, for something that may be wrong. What is guessed is `guesses.py`'s.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Hashable, Iterable, Sequence
from itertools import islice
from operator import add, attrgetter, le, sub

from mlcc.engine.batch.adjust_tables import AdjustLayout
from mlcc.engine.batch.batch import Capacity, StateSlot
from mlcc.engine.kv_cache.cache_manager import CacheManager
from mlcc.engine.kv_cache.radix_tree import Hit
from mlcc.engine.lora import Adapter, AdapterSlots
from mlcc.engine.scheduler.budgets import SHORT, PrefillAllowance, PrefillBudget, StepBudget
from mlcc.engine.scheduler.waiting_queue import WaitingQueue
from mlcc.engine.sequence import TokenSequence
from mlcc.engine.spec_decode.speculator import Speculator


class DraftPlanner:
    """Of one scheduler. speculator: None = nothing is guessed."""

    def __init__(self, pools: CacheManager, speculator: Speculator | None) -> None:
        self._pools, self._speculator = pools, speculator
        self.waited = False
        """Whether a sequence is not in the step that is planned, as guesses may follow its token in
        flight."""

    def begin(self, decodes: int) -> None:
        """A step is planned in which so many sequences decode."""
        self.waited = False
        if self._speculator is not None:
            self._speculator.begin(decodes)

    def waits(self, seq: TokenSequence) -> bool:
        """Whether its token in flight is waited for, as guesses may follow that."""
        waits = bool(seq.pending) and seq.draft_state is not None and seq.draft_state.holds()
        self.waited |= waits
        return waits

    def wants(self, seqs: Sequence[TokenSequence]) -> bool:
        """Whether the next step of sequences that all decode may be another than plain decoding."""
        if self._speculator is None:
            return False
        self.begin(len(seqs))
        if self._speculator.resting:
            return False
        return any(s.draft_state is not None and s.draft_state.wants(bool(s.pending)) for s in seqs)

    def reads(self, seq: TokenSequence) -> bool:
        """Whether what is next of it is of a prompt, or is computed again after it gave way; what
        follows guesses that were wrong in a model with states is neither."""
        follows = 0
        if self._speculator is not None and seq.draft_state is not None and _said(seq):
            follows = self._speculator.longest
        return seq.remaining > 1 + follows

    def extend(
        self, chunks: Sequence[tuple[TokenSequence, int]], room: StepBudget
    ) -> list[tuple[TokenSequence, int]]:
        """The chunks of a step, and behind those at whose end a token is sampled their guesses."""
        return [(seq, count + self._guess(seq, count, room)) for seq, count in chunks]

    def _guess(self, seq: TokenSequence, count: int, room: StepBudget) -> int:
        """How many."""
        if seq.draft_state is None or seq.pending or count != seq.remaining or not _said(seq):
            return 0
        most = min(seq.limit - len(seq.tokens) - 1, room.rows, room.tokens)
        draft = room.fit_draft(seq, seq.draft_state.propose(most))
        if not draft or not self._pools.fork(seq.caches):
            return 0
        fits = self._pools.claim(seq.caches, seq.computed, count + len(draft))
        seq.draft, seq.before = tuple(draft[: fits - count]), seq.computed
        room.take_draft(seq)
        return len(seq.draft)

    def settle(self, seq: TokenSequence, right: int) -> None:
        """The step with its guesses is done, and it goes on; so many of them were right. What was
        computed of the others is given back: pages, and of states the whole step."""
        if not seq.draft:  # it gave way meanwhile
            return
        if right == len(seq.draft):
            self._pools.advance(seq.caches)
        elif self._pools.tree.has_states:
            seq.computed = seq.before
        seq.draft = ()
        self._pools.trim(seq.caches, seq.computed)


def _said(seq: TokenSequence) -> int:
    """Known tokens of its answer."""
    return len(seq.tokens) - seq.prompt_tokens


class PrefixReuse:
    """Of one engine. `prefix_cache` False = only a family shares what was computed of its prompt.

    cached_tokens: tokens of prompts that were not computed, as they were there.
    """

    def __init__(self, pools: CacheManager, prefix_cache: bool) -> None:
        self.cached_tokens = 0
        self._pools = pools
        self._prefix_cache = prefix_cache

    def find(self, seq: TokenSequence) -> Hit | None:
        """What of its prompt is there."""
        scope = self.scope(seq)
        whole = scope is None or seq.prompt_logprobs is not None
        return None if whole else self._pools.find(scope, seq.tokens)

    def uncached(self, seq: TokenSequence) -> int:
        """Tokens that a waiting sequence is to compute: the rest was there when this was first
        asked, if it is long."""
        if seq.uncached < 0:
            hit = self.find(seq) if seq.remaining > SHORT else None
            seq.uncached = seq.remaining - (0 if hit is None else hit.tokens)
        return seq.uncached

    def take(self, seq: TokenSequence, hit: Hit | None) -> None:
        """It starts with what is there."""
        if hit is not None:
            self._pools.take(seq.caches, hit)
            seq.computed = hit.tokens
            if seq.cached is None:  # what was preempted has been counted
                seq.cached = min(seq.computed, seq.prompt_tokens)
                self.cached_tokens += seq.cached

    def planned(self, chunks: Iterable[tuple[TokenSequence, int]]) -> None:
        """The prompts of a step that is planned may be shared from the next step on: to the last
        token with the rest of a family."""
        for seq, count in chunks:
            group = seq.sampling_group
            if group is not None and not group.computed and seq.computed >= seq.prompt_tokens:
                group.computed = True
                self.keep(seq, ended=len(group.members) > 1)
            elif not seq.draft and (count > 1 or seq.computed <= seq.prompt_tokens):
                block = self._pools.tree.block
                if (seq.computed - count) // block < seq.computed // block:
                    self.keep(seq, ended=False)

    def keep(self, seq: TokenSequence, ended: bool) -> None:
        """What is computed of it is found from now on."""
        if (scope := self.scope(seq)) is not None:
            self._pools.remember(scope, seq.tokens[: seq.computed], seq.caches, ended)

    def scope(self, seq: TokenSequence) -> Hashable | None:
        """Who finds what was computed for it; None = nobody."""
        if self._prefix_cache:
            return seq.scope
        group = seq.request.sampling_group
        return (*seq.scope, group) if group else None


Chunk = tuple[TokenSequence, int]
"""A sequence and how many of its next tokens to compute, its guesses among them."""


class Scheduler:
    """The waiting and the running sequences."""

    def __init__(
        self,
        capacity: Capacity,
        pools: CacheManager,
        pace: PrefillBudget,
        prefix_cache: bool = True,
        speculator: Speculator | None = None,
        adapters: AdapterSlots | None = None,
    ) -> None:
        self.waiting = WaitingQueue()
        self.running: list[TokenSequence] = []
        """By rank, the best first."""
        self.changes = 0
        """How often somebody came or went."""
        self.preemptions = 0
        self._capacity = capacity
        self._pools = pools
        self._pace = pace
        self.prefix_reuse = PrefixReuse(pools, prefix_cache)
        self._adapters = adapters or AdapterSlots(0)
        self.draft_planner = DraftPlanner(pools, speculator)
        """Puts guesses into its steps."""
        self.decodes = False
        """Whether the step planned last has nothing of prompts."""
        self.decoding = 0
        """How many sequences decode when it was planned, in it or waited for."""
        self._paged = [group.has_pages for group in pools.groups]
        adjusted = AdjustLayout.of(capacity.layout, capacity.vocab_size)
        self._most_adjust_words = adjusted.words - adjusted.rows.end
        self._room = StepBudget(0, 0, 0)
        """Of this step."""
        # With no more sequences than tokens and rows in a step, each can move in every step.
        self._max_running = min(capacity.max_batch, capacity.max_step_tokens, capacity.max_rows)

    @property
    def is_settled(self) -> bool:
        """Whether who runs stays the same until somebody comes or goes, or a page is wanting."""
        return not self.waiting or len(self.running) >= self._max_running

    def add(self, seq: TokenSequence) -> None:
        self.waiting.enter(seq)
        self.changes += 1

    @property
    def adapters(self) -> set[Adapter]:
        """Those that stay in their slots now: of who runs, or has a step in flight."""
        waiting = (seq for seq in self.waiting if seq.pending)
        return {s.adapter for s in (*self.running, *waiting) if s.adapter is not None}

    @property
    def has_slot(self) -> bool:
        """Whether one sequence more may run."""
        return len(self.running) < self._max_running

    def add_running(self, seq: TokenSequence, computed: int) -> None:
        """A sequence that holds what was computed of it elsewhere."""
        self.changes += 1
        self.waiting.enter(seq)
        self.waiting.remove(seq)
        insort(self.running, seq, key=attrgetter("rank"))
        seq.computed = computed

    def remove(self, seq: TokenSequence) -> None:
        """Forget a finished sequence; its pages are free."""
        self.changes += 1
        if seq in self.running:
            self.running.remove(seq)
        else:
            self.waiting.remove(seq)
        self.waiting.leave(seq)
        self._release(seq)

    def schedule(self, step: int) -> list[Chunk]:
        """What to run as `step`; empty if nothing can run before a commit.

        Takes pages for it and preempts for them, but leaves `computed` to the packing.
        """
        decodes = sum(1 for seq in self.running if seq.remaining == 1 and seq.runnable(step))
        self.decoding = decodes
        whole = self._capacity.max_step_tokens - decodes
        self.draft_planner.begin(decodes)
        allowed = self._pace.allow(decodes, whole, self._short_prompts())
        chunks = self._fill(step, whole, allowed)
        if not chunks and (decodes or allowed.short_only):  # held back for who found no page
            chunks = self._fill(step, whole, PrefillAllowance(whole))
        if chunks:
            prompts = [
                (count, seq.computed) for seq, count in chunks if self.draft_planner.reads(seq)
            ]
            self.decodes = not prompts
            chunks = self.draft_planner.extend(chunks, self._room)
            self.waiting.charge(chunks)
            self._pace.planned(len(chunks) - len(prompts), prompts)
        return chunks

    def _short_prompts(self) -> int:
        """Prompts that may be computed at once and take no long."""
        waiting = islice(self.waiting, self._max_running - len(self.running))
        begun = sum(1 for seq in self.running if 1 < seq.remaining <= SHORT)
        return begun + sum(1 for seq in waiting if self.prefix_reuse.uncached(seq) <= SHORT)

    def again(self, chunks: Sequence[Chunk]) -> None:
        """The same decoding sequences run in one step more."""
        self.waiting.charge(chunks)
        self._pace.planned(len(chunks), [])

    def _fill(self, step: int, tokens: int, allowed: PrefillAllowance) -> list[Chunk]:
        """A step with no more of prompts than is allowed, of so many tokens beside the decoding
        sequences'."""
        chunks: list[Chunk] = []
        rows = self._capacity.max_rows - len(self.running)
        room = self._room = StepBudget(tokens, rows, self._most_adjust_words)
        index = 0
        while index < len(self.running):  # preemption shortens the list, from its end
            seq = self.running[index]
            index += 1
            if not seq.runnable(step) or self.draft_planner.waits(seq):
                continue
            prompt = seq.remaining > 1
            most = allowed.tokens(seq.computed, seq.remaining) if prompt else 1
            if not most or not room.adjust(seq):
                continue
            count = self._grow(seq, self._chunk(seq, most))
            if prompt:
                allowed.spend(count, seq.computed)
                room.take(seq, count)
            if count:
                chunks.append((seq, count))
        self._admit(chunks, allowed)
        return chunks

    def _admit(self, chunks: list[Chunk], allowed: PrefillAllowance) -> None:
        """Start waiting sequences while slots, tokens and pages last. Nobody is overtaken for
        wanting many pages, and nobody gives way: they may be in this step already. Who waits for an
        adapter's slot is overtaken by those that want none, as they keep none from it, and a prompt
        that is not to be read now by short ones."""
        room, plain, short = self._room, False, False

        def fits(seq: TokenSequence) -> bool:
            return not (plain and seq.adapter) and not (
                short and self.prefix_reuse.uncached(seq) > SHORT
            )

        while len(self.running) < self._max_running and room.rows > 0:
            seq = self.waiting.first(fits)
            if seq is None or seq.pending or not allowed.tokens(0) or not room.adjust(seq):
                return
            if seq.adapter is not None and not self._adapters.on_device(seq.adapter, self.adapters):
                plain = True
                continue
            hit = self.prefix_reuse.find(seq)
            past = hit.tokens if hit is not None else 0
            seq.uncached = seq.remaining - past
            most = allowed.tokens(past, seq.uncached)
            if not most and seq.uncached > SHORT:
                short = True
                continue
            if not most or not self._has_room(seq, hit):
                return
            self.waiting.remove(seq)
            room.rows -= 1
            insort(self.running, seq, key=attrgetter("rank"))
            self.prefix_reuse.take(seq, hit)
            count = self._pools.claim(seq.caches, seq.computed, self._chunk(seq, most))
            allowed.spend(count, seq.computed)
            room.take(seq, count)
            if count:
                chunks.append((seq, count))

    def _chunk(self, seq: TokenSequence, most: int) -> int:
        """How many of its next tokens to compute: of a model with states up to where the state can
        be found again, the last whole block of the prompt."""
        count = min(seq.remaining, most)
        if seq.prompt_logprobs is not None:
            count = min(count, 1 + self._room.rows)
        tree = self._pools.tree
        if tree.has_states and self.prefix_reuse.scope(seq) is not None:
            whole = (seq.prompt_tokens - 1) // tree.block * tree.block - seq.computed
            if 0 < whole < count:
                return whole
        return count

    def _has_room(self, seq: TokenSequence, hit: Hit | None) -> bool:
        """Whether its whole prompt fits beside what the running sequences will want soon.

        Only a guess to keep preemption rare: one page for each, and the rest of their prompts.
        """
        wanted = self._pools.lacking(seq.caches, seq.planned)
        if hit is not None:
            wanted = list(map(sub, wanted, hit.saves))
        for other in self.running:
            more = self._pools.lacking(other.caches, other.planned)
            soon = [max(1, b) if p else b for b, p in zip(more, self._paged, strict=True)]
            wanted = list(map(add, wanted, soon))
        return all(map(le, wanted, self._pools.free_beside(hit)))

    def _grow(self, seq: TokenSequence, want: int) -> int:
        """Take room for up to `want` more tokens; returns for how many there is."""
        while not (count := self._pools.claim(seq.caches, seq.computed, want)):
            if self.running[-1] is seq:
                return 0
            self._preempt_last()
        return count

    def _preempt_last(self) -> None:
        seq = self.running.pop()
        self._release(seq)
        self.waiting.put(seq)
        self.preemptions += 1

    def _release(self, seq: TokenSequence) -> None:
        """Take its pages, of which the prefix cache remembers what they hold."""
        self.prefix_reuse.keep(seq, ended=True)
        self._pools.release(seq.caches)
        seq.caches, seq.computed, seq.draft, seq.uncached = self._pools.empty(), 0, (), -1

    def check_integrity(self) -> None:
        """Raise AssertionError if order, pages or counts of the sequences disagree."""
        ranks = [seq.rank for seq in self.running]
        if ranks != sorted(ranks):
            raise AssertionError(f"who runs is out of order: {ranks}")
        self.waiting.check_integrity(self.running)
        for seq in (*self.running, *self.waiting):
            if seq.finished or not self._full(seq) or not 0 < seq.planned <= seq.limit:
                raise AssertionError(f"sequence {seq.request.id!r} is inconsistent: {seq}")
        if any(seq.computed for seq in self.waiting):
            raise AssertionError("a waiting sequence holds pages")
        self._pools.check_integrity(seq.caches for seq in self.running)

    def _full(self, seq: TokenSequence) -> bool:
        """Whether it holds just what its computed tokens need."""
        for group, cache in zip(self._pools.groups, seq.caches, strict=True):
            if isinstance(cache, StateSlot):
                if (cache.write >= 0) != (seq.computed > 0):
                    return False
            elif cache.first + len(cache.ids) != -(-seq.computed // group.page_size):
                return False
        return True
