"""The sans-IO engine: requests in, batches out, results in, events out.

It never blocks and touches no device, clock or socket; a driver moves batches to an executor:

    while engine.has_work:
        while len(tickets) < depth and (batch := engine.plan()) is not None:
            tickets.append(executor.submit(batch, engine.adjustments()))
        for event in engine.commit(executor.collect(tickets.popleft())): ...

One thread at a time may call it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from mlcc.engine.admission import Admission
from mlcc.engine.batch.adjust_tables import AdjustLayout
from mlcc.engine.batch.adjustments import Adjustments
from mlcc.engine.batch.batch import Batch, Capacity, Result, check_capacity
from mlcc.engine.batch.random import derive_seed, stream_of
from mlcc.engine.events import Event, Stats
from mlcc.engine.kv_cache.cache_manager import CacheManager
from mlcc.engine.lora import Adapter, AdapterSlots
from mlcc.engine.migration import Migration
from mlcc.engine.output_processor import OutputProcessor, check_result
from mlcc.engine.request import Request
from mlcc.engine.sampling.grammar import Grammar
from mlcc.engine.sampling_group import SamplingGroups
from mlcc.engine.scheduler.budgets import PrefillBudget
from mlcc.engine.scheduler.packing import AdjustedSequence, DecodeStep, Step, adjust, pack
from mlcc.engine.scheduler.scheduler import Scheduler
from mlcc.engine.sequence import TokenSequence
from mlcc.engine.spec_decode.draft_model import DraftModel, DraftRunner
from mlcc.engine.spec_decode.speculator import Speculator
from mlcc.engine.text.detokenizer import Tokenizer
from mlcc.errors import InvalidRequestError


class Engine:
    """Continuous batching for one model on one executor.

    `tokenizer` may be None for drivers that want tokens only. `seed` is the base from which
    requests that bring no seed get theirs, by order of arrival. `prefix_cache`: what was computed
    for one request is used for others that begin with the same tokens (and the same `scope`).
    `defer_text`: events have no text where it decides nothing; `DeferredText` adds it.
    speculator: guesses what answers say, for the device to compute several tokens of one at once;
    None = one at a time. Answers are the same. draft: the model that guesses, if one does.
    """

    def __init__(
        self,
        capacity: Capacity,
        eos_ids: Iterable[int] = (),
        tokenizer: Tokenizer | None = None,
        *,
        seed: int = 0,
        prefix_cache: bool = True,
        defer_text: bool = False,
        speculator: Speculator | None = None,
        draft: DraftModel | None = None,
    ) -> None:
        check_capacity(capacity)
        self.capacity = capacity
        self._seed = seed
        self._pools = CacheManager(capacity)
        self._pace = PrefillBudget()
        self._speculator = speculator
        self._drafts = DraftRunner(draft, speculator, self._pools) if draft and speculator else None
        self.adapters = AdapterSlots(capacity.layout.adapter_slots)
        """Those that requests may name; what is in their slots, who drives the device writes."""
        self._scheduler = Scheduler(
            capacity, self._pools, self._pace, prefix_cache, speculator, self.adapters
        )
        self._sampling_groups = SamplingGroups()
        made = self._pools, self._sampling_groups, self.adapters
        self._new = Admission(capacity, frozenset(eos_ids), tokenizer, defer_text, made)
        self._live: dict[str, TokenSequence] = {}
        self._in_flight: deque[Step] = deque()
        """Every step planned and not committed."""
        books = self._live, self._in_flight, self._pools, self._scheduler
        self.migration = Migration(capacity, books, self._sequence, self._enter)
        """How a half-computed request leaves, and how one of another engine goes on."""
        self._adjust_layout = AdjustLayout.of(capacity.layout, capacity.vocab_size)
        self._adjusted: list[AdjustedSequence] = []
        """Of the step planned last."""
        self._steady: DecodeStep | None = None
        """Makes the next step, if the last only decoded."""
        self._results = OutputProcessor(
            self._live, self._scheduler, self._sampling_groups, self.adapters
        )
        self._steps = self._requests = self._computed = 0

    @property
    def has_work(self) -> bool:
        """Whether a request is unfinished or a step is in flight."""
        return bool(self._live or self._in_flight)

    def add(self, request: Request, grammar: Grammar | None = None) -> None:
        """Queue a request, with the grammar of its `structure`. Raises InvalidRequestError if it
        can never be answered as written."""
        given = request.sampling.seed
        seed = given if given is not None else derive_seed(self._seed, self._requests)
        seq = self._sequence(request, grammar, stream_of(seed))
        self._enter(seq)
        self._scheduler.add(seq)

    def _sequence(self, request: Request, grammar: Grammar | None, stream: int) -> TokenSequence:
        """Of a new request, whose draws come from `stream`. Raises InvalidRequestError."""
        if request.id in self._live:
            raise InvalidRequestError(
                f"request id {request.id!r} is already in use; choose another", param="id"
            )
        return self._new.make(request, grammar, stream, self._requests)

    def _enter(self, seq: TokenSequence) -> None:
        if seq.request.adapter:
            seq.adapter = self.adapters.join(seq.request.adapter)
        supports_drafts = (
            seq.logits_processor is None or seq.logits_processor.supports_drafts
        ) and not seq.needs_all_tokens
        if self._speculator is not None and supports_drafts:  # answers of its own adapter's
            tree = self._pools.tree
            seq.draft_state = self._speculator.open(seq.request, seq.tokens, tree, seq.scope)
        self._requests += 1
        self._live[seq.request.id] = seq

    @property
    def busy_adapters(self) -> set[Adapter]:
        """Those that must stay in their slots now."""
        return self._scheduler.adapters

    def cancel(self, request_id: str) -> list[Event]:
        """End a request now; returns its last events, none if it is unknown or already ended."""
        seq = self._live.get(request_id)
        return [] if seq is None else self._results.finish(seq, "cancelled")

    def plan(self, into: memoryview | None = None) -> Batch | None:
        """The next step, or None if there is nothing to run (before the next commit, or before the
        driver has brought the adapters that are `wanted`).

        May be called again before earlier steps are committed; tokens not known yet are then
        written as -1 - row of the step planned just before. `into` is memory for the batch, as
        `BatchWriter` takes it: int32 words that the device lends.
        """
        batch = self._go_on(into) or self._plan_anew(into)
        if batch is not None:
            self._steps += 1
            self._computed += batch.num_tokens
        return batch

    def _go_on(self, into: memoryview | None) -> Batch | None:
        """The step before, a token further, if that is what comes next."""
        steady, scheduler = self._steady, self._scheduler
        if steady is None or steady.changes != scheduler.changes:
            return None
        if scheduler.draft_planner.wants(steady.sequences):
            return None
        batch = steady.step(self._steps, into)
        if batch is not None:
            scheduler.again(steady.chunks)
            width = batch.num_tokens
            self._in_flight.append(Step(steady.rows, width, width))
        return batch

    def _plan_anew(self, into: memoryview | None) -> Batch | None:
        self._steady, scheduler = None, self._scheduler
        chunks = scheduler.schedule(self._steps)
        if self._drafts is not None:
            self._drafts.end(chunks)
        if not chunks:
            return None
        packed = pack(chunks, self._steps, self.capacity.layout, self._pools, into)
        batch, rows, self._adjusted = packed
        scheduler.prefix_reuse.planned(chunks)
        tokens, waited = (
            batch.num_tokens if scheduler.decodes else 0,
            scheduler.draft_planner.waited,
        )
        self._in_flight.append(Step(rows, tokens, scheduler.decoding, waited))
        whole = len(chunks) == len(scheduler.running) and scheduler.is_settled
        if whole and self._drafts is None and DecodeStep.may_follow(chunks, rows):
            self._steady = DecodeStep(batch, chunks, rows, self._pools, scheduler.changes)
        return batch

    def plan_draft(self, into: memoryview | None = None) -> Batch | None:
        """The draft model's next step, before the next `plan`; None = there is none to run. Each
        is run, and committed by `commit_draft`, before the next is asked for."""
        return None if self._drafts is None else self._drafts.plan(self._scheduler.running, into)

    def commit_draft(self, result: Result, seconds: float | None = None) -> None:
        """Take what the draft model says; seconds as of `commit`."""
        assert self._drafts is not None
        self._drafts.commit(result, seconds)

    def adjustments(
        self, lend: Callable[[], memoryview | None] = lambda: None
    ) -> Adjustments | None:
        """What is done to the logits of the step planned last, before the next commit; None = they
        are sampled as they are. `lend` gives memory for it, as the device lends it."""
        if not self._adjusted:
            return None
        return adjust(self._adjusted, self._adjust_layout, lend())

    def commit(self, result: Result, seconds: float | None = None) -> list[Event]:
        """Take the result of the oldest step in flight; returns what happened to its requests.

        seconds: what the step took, if that was measured; decides how much of prompts later steps
        compute beside decoding sequences (`pace.py`), and nothing else.
        Raises DeviceError, and changes nothing, if the result does not fit the step.
        """
        if not self._in_flight:
            raise RuntimeError("commit without a planned step; commit once for each plan")
        step = self._in_flight[0]
        check_result(result, step.width, self.capacity.vocab_size)
        self._in_flight.popleft()
        self._pace.took(seconds)
        right = self._results.accepted
        events = self._results.take(step.rows, result)
        if self._speculator is not None:
            self._speculator.took(step.decoded, self._results.accepted - right, seconds)
        return events

    def fail(self) -> list[Event]:
        """The device failed: forget all steps in flight and end every request with "error"."""
        self._in_flight.clear()
        self._pace.forget()
        if self._drafts is not None:
            self._drafts.forget()
        events: list[Event] = []
        for seq in [*self._live.values()]:
            events += self._results.finish(seq, "error")
        self.forget_prefixes()  # their pages may never have been computed
        return events

    def forget_prefixes(self) -> None:
        """The prefix cache keeps nothing but what live requests hold. The pages stay taken."""
        self._pools.forget()

    def prefix_digest(self) -> bytes:
        """What the prefix cache has, for who chooses among engines (`sketch.py`)."""
        from mlcc.engine.kv_cache.prefix_digest import prefix_digest  # no tab or phone needs it

        return prefix_digest(self._pools.tree)

    def stats(self) -> Stats:
        """Counters for metrics and tests."""
        return Stats(
            waiting=len(self._scheduler.waiting),
            running=len(self._scheduler.running),
            in_flight=len(self._in_flight),
            pages=sum(self.capacity.pools),
            pages_free=sum(pool.free_count for pool in self._pools.pools),
            steps=self._steps - len(self._in_flight),
            requests=self._requests,
            computed_tokens=self._computed,
            sampled_tokens=self._results.sampled,
            preemptions=self._scheduler.preemptions,
            cached_tokens=self._scheduler.prefix_reuse.cached_tokens,
            drafted_tokens=self._results.drafted,
            accepted_tokens=self._results.accepted,
            pages_kept=sum(pool.kept_count for pool in self._pools.pools),
        )

    def check_integrity(self) -> None:
        """Raise AssertionError if the engine's books disagree. O(everything): for tests."""
        self._scheduler.check_integrity()
        held = {*self._scheduler.running, *self._scheduler.waiting}
        if held != set(self._live.values()):
            raise AssertionError("the scheduler's sequences are not the live requests")
        self.adapters.check_integrity(seq.adapter for seq in held)
        rows = [row for step in self._in_flight for row in step.rows if row.told < 0]
        if any(seq.pending != sum(r.width for r in rows if r.seq is seq) for seq in held):
            raise AssertionError("pending tokens do not match the steps in flight")
