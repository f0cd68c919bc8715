"""The sans-IO engine: requests in, batches out, results in, events out.

It never blocks and touches no device, clock or socket. A driver passes batches to an executor:

    while engine.has_work:
        while len(tickets) < depth and (batch := engine.plan()) is not None:
            tickets.append(executor.submit(batch, engine.adjustments()))
        for event in engine.commit(executor.collect(tickets.popleft())): ...

If anything of that raises, the driver drops its tickets and calls `recover`: the request that is
the cause ends alone, and the others continue.

One thread at a time may call it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from mlcc.engine.admission import Admission
from mlcc.engine.alignment import Alignments
from mlcc.engine.batch.adjust_tables import AdjustLayout
from mlcc.engine.batch.adjustments import Adjustments
from mlcc.engine.batch.batch import Batch, Capacity, Result, check_capacity
from mlcc.engine.batch.random import derive_seed, stream_of
from mlcc.engine.events import Event, Stats
from mlcc.engine.kv_cache.cache_manager import CacheManager
from mlcc.engine.lora import Adapter, AdapterSlots
from mlcc.engine.media_embeddings import MediaEmbeddings
from mlcc.engine.migration import Migration
from mlcc.engine.output_processor import OutputProcessor, check_result
from mlcc.engine.request import Request
from mlcc.engine.sampling.grammar import Grammar
from mlcc.engine.sampling_group import SamplingGroups
from mlcc.engine.scheduler.budgets import PrefillBudget
from mlcc.engine.scheduler.packing import (
    AdjustedSequence,
    DecodeStep,
    Step,
    adjust,
    pack,
    step_order,
)
from mlcc.engine.scheduler.scheduler import Scheduler
from mlcc.engine.sequence import TokenSequence
from mlcc.engine.spec_decode.draft_model import DraftRunner
from mlcc.engine.spec_decode.mtp import Drafter, MtpRunner
from mlcc.engine.spec_decode.speculator import Speculator
from mlcc.engine.text.stop_checker import NewContentParser
from mlcc.engine.text.tokenizer import Tokenizer
from mlcc.errors import InvalidRequestError, MlccError


class Engine:
    """Continuous batching for one model on one executor.

    tokenizer: may be None for drivers that want tokens only. seed: the base of the seeds of
    requests that bring none, by order of arrival. prefix_cache: cached prefixes are reused by
    requests of the same `scope`. defer_text: events carry no text where the text decides nothing;
    `DeferredText` adds it. speculator: drafts tokens so that a step can verify several of them;
    None = one token per sequence and step. The output is the same. draft: the draft model, if one
    drafts. new_parser: makes the parser of a request's `parser`.
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
        draft: Drafter | None = None,
        new_parser: NewContentParser | None = None,
    ) -> None:
        check_capacity(capacity)
        self.capacity = capacity
        self._seed = seed
        self._pools = CacheManager(capacity)
        self._prefill_budget = PrefillBudget()
        self._speculator = speculator
        self._draft_runner = draft.runner(speculator, self._pools) if draft and speculator else None
        self.adapters = AdapterSlots(capacity.layout.adapter_slots)
        """LoRA adapters that requests may name. The driver writes them to their slots."""
        both_ways = "visible_until" in capacity.layout.token_columns
        self.media = MediaEmbeddings(
            capacity.embedding_slots,
            capacity.vocab_size,
            capacity.max_step_tokens - capacity.max_batch if both_ways else 0,
            capacity.window_rows,
        )
        """Images of the requests. The driver makes their rows and writes them to their slots."""
        self._scheduler = Scheduler(
            capacity,
            self._pools,
            self._prefill_budget,
            prefix_cache,
            speculator,
            self.adapters,
            self.media,
        )
        self.times = self._scheduler.times
        self._sampling_groups = SamplingGroups()
        self._admission = Admission(
            capacity,
            frozenset(eos_ids),
            tokenizer,
            defer_text,
            self._pools,
            self._sampling_groups,
            self.adapters,
            self.media,
            new_parser,
        )
        self._sequences: dict[str, TokenSequence] = {}
        self._in_flight: deque[Step] = deque()
        """Steps that are planned and not committed, oldest first."""
        self.migration = Migration(
            capacity.vocab_size,
            self._sequences,
            self._in_flight,
            self._pools,
            self._scheduler,
            self._admit,
            self._register,
        )
        """Exports a half-computed request to another engine, and resumes one of another engine."""
        self._adjust_layout = AdjustLayout.of(capacity.layout, capacity.vocab_size)
        self._adjusted: list[AdjustedSequence] = []
        """Rows of the step planned last whose logits are adjusted."""
        self._decode_step: DecodeStep | None = None
        """Makes the next step if the last one only decoded."""
        self._output_processor = OutputProcessor(
            self._sequences, self._scheduler, self._sampling_groups, self.adapters, self.media
        )
        self.alignments: Alignments = self._output_processor.alignments
        """Answers that have ended, which the driver aligns before the next `plan`."""
        self._events: list[Event] = []
        """Events of a commit that has not returned."""
        self._steps = self._requests = self._computed = 0

    @property
    def has_work(self) -> bool:
        """Whether a request is unfinished or a step is in flight."""
        return bool(self._sequences or self._in_flight or self.alignments)

    def add(self, request: Request, grammar: Grammar | None = None) -> None:
        """Queue a request, with the grammar of its `structure`. Raises InvalidRequestError if the
        request can never be answered as written."""
        given = request.sampling.seed
        seed = given if given is not None else derive_seed(self._seed, self._requests)
        seq = self._admit(request, grammar, stream_of(seed))
        self._register(seq)
        seq.arrived = self.times.clock()
        self._scheduler.add(seq)

    def _admit(self, request: Request, grammar: Grammar | None, stream: int) -> TokenSequence:
        """Build the sequence of a new request, with `stream` as its random stream. Raises
        InvalidRequestError."""
        if request.id in self._sequences:
            raise InvalidRequestError(
                f"request id {request.id!r} is already in use; choose another", param="id"
            )
        return self._admission.make(request, grammar, stream, self._requests)

    def _register(self, seq: TokenSequence) -> None:
        tree = self._pools.tree
        if seq.request.adapter:
            seq.adapter = self.adapters.join(seq.request.adapter)
        processor = seq.logits_processor
        may_draft = not seq.needs_all_tokens and (processor is None or processor.supports_drafts)
        may_draft = may_draft and not (seq.media and self._draft_runner)  # it reads text only
        if self._speculator is not None and may_draft:
            try:  # the scope includes the adapter
                seq.draft_state = self._speculator.open(seq.request, seq.tokens, tree, seq.scope)
            except Exception:
                self._admission.withdraw(seq)
                raise
        self._requests += 1
        self._sequences[seq.request.id] = seq

    @property
    def busy_adapters(self) -> set[Adapter]:
        """Adapters that must stay in their slots now."""
        return self._scheduler.adapters

    def cancel(self, request_id: str) -> list[Event]:
        """End a request now. Returns its last events; none if the request is unknown or already
        finished."""
        seq = self._sequences.get(request_id)
        if seq is None:
            return self.alignments.cancel(request_id)
        return self._output_processor.finish(seq, "cancelled")

    def plan(self, into: memoryview | None = None) -> Batch | None:
        """The next step, or None if nothing can run before the next commit, or before the driver
        has loaded the adapters in `adapters.to_load` and encoded what is in `media.to_encode`.

        May be called again before earlier steps are committed. A token that is not known yet is
        written as -1 - row of the step planned just before. into: memory for the batch, as
        `BatchWriter` takes it: int32 words in the device's step buffer.
        """
        self._check_damage()
        isolation = self._scheduler.isolation
        if isolation.active:
            if self._in_flight:
                return None
            if isolation.advance():
                self._begin_group()
        runner = self._draft_runner if self._in_flight else None
        if isinstance(runner, MtpRunner) and runner.must_wait(self._scheduler.running):
            return None
        batch = self._plan_decode(into) or self._plan_step(into)
        if batch is not None:
            self._steps += 1
            self._computed += batch.num_tokens
        return batch

    def _begin_group(self) -> None:
        """Another group of suspects begins, without the sequences of the one before."""
        if not all(map(self._scheduler.isolation.may_run, self._scheduler.running)):
            self._scheduler.preempt_all()
            self._decode_step = None

    def _plan_decode(self, into: memoryview | None) -> Batch | None:
        """The previous step one token further, if nothing changed; else None."""
        decode_step, scheduler = self._decode_step, self._scheduler
        if decode_step is None or decode_step.changes != scheduler.changes:
            return None
        if scheduler.draft_planner.may_draft(decode_step.sequences):
            return None
        if self._draft_runner is not None:
            self._draft_runner.finish_round(decode_step.chunks)
        batch = decode_step.step(self._steps, into)
        if batch is not None:
            scheduler.repeat_decodes(decode_step.chunks)
            if isinstance(self._draft_runner, MtpRunner):
                self._draft_runner.step_planned(decode_step.chunks)
            width = batch.num_tokens
            self._in_flight.append(Step(decode_step.rows, width, width))
        return batch

    def _plan_step(self, into: memoryview | None) -> Batch | None:
        """A step from the scheduler."""
        self._decode_step, scheduler = None, self._scheduler
        chunks = step_order(scheduler.schedule(self._steps))
        if self._draft_runner is not None:
            self._draft_runner.finish_round(chunks)
        if not chunks:
            return None
        layout, pools = self.capacity.layout, self._pools
        batch, rows, self._adjusted = pack(chunks, self._steps, layout, pools, into, self.media)
        scheduler.prefix_reuse.step_planned(chunks)
        if isinstance(self._draft_runner, MtpRunner):
            self._draft_runner.step_planned(chunks)
        tokens = batch.num_tokens if scheduler.decode_only else 0
        waited = scheduler.draft_planner.waited
        self._in_flight.append(Step(rows, tokens, scheduler.num_decoding, waited))
        whole = len(chunks) == len(scheduler.running) and scheduler.is_settled
        repeats = not isinstance(self._draft_runner, DraftRunner)  # whose rounds need every plan
        if whole and repeats and DecodeStep.may_follow(chunks, rows):
            self._decode_step = DecodeStep(batch, chunks, rows, self._pools, scheduler.changes)
        return batch

    def plan_draft(self, into: memoryview | None = None) -> Batch | None:
        """The next step of the draft model, or of the model's own layer that drafts, before the
        next `plan`; None if there is none to run. Each is run and committed with `commit_draft`
        before the next call."""
        runner = self._draft_runner
        if runner is None or (isinstance(runner, MtpRunner) and self._in_flight):
            return None
        return runner.plan(self._scheduler.running, into)

    def commit_draft(self, result: Result, seconds: float | None = None) -> None:
        """Take the draft model's result. seconds: as in `commit`."""
        assert self._draft_runner is not None
        self._draft_runner.commit(result, seconds)

    def adjustments(
        self, buffer: Callable[[], memoryview | None] = lambda: None
    ) -> Adjustments | None:
        """Logit adjustments of the step planned last, before the next commit; None if there are
        none. buffer: returns the device's memory for them, or None."""
        if not self._adjusted:
            return None
        return adjust(self._adjusted, self._adjust_layout, buffer())

    def commit(self, result: Result, seconds: float | None = None) -> list[Event]:
        """Take the result of the oldest step in flight. Returns the events of its requests.

        seconds: measured duration of the step, if known. It sets how many prompt tokens later steps
        compute beside decoding sequences (`budgets.py`), and how many tokens are drafted. Raises
        DeviceError, and changes nothing, if the result does not fit the step.
        """
        if not self._in_flight:
            raise RuntimeError("commit without a planned step; commit once for each plan")
        step = self._in_flight[0]
        check_result(result, step.width, self.capacity.vocab_size)
        self._in_flight.popleft()
        self._prefill_budget.observe(seconds)
        accepted_before = self._output_processor.accepted
        self._output_processor.process(step.rows, result, self._events)
        if self._speculator is not None:
            accepted = self._output_processor.accepted - accepted_before
            self._speculator.observe(step.decode_stats, accepted, seconds)
        self._check_damage()
        return self._take_events()

    def _check_damage(self) -> None:
        """Raise the error that left the engine's state inconsistent, for `recover` to rebuild."""
        if self._output_processor.damage is not None:
            raise self._output_processor.damage

    def recover(self, error: MlccError, planning: bool) -> list[Event]:
        """A step failed, and the driver has dropped its tickets: drop all steps in flight and
        compute every request again from its known tokens, with the same output. If one request is
        known to be the cause it ends with `error`; else the next steps find it (`isolation.py`).

        planning: whether the step was still being planned, so that a waiting request may be the
        cause. Returns events that were not delivered yet.
        """
        damaged = self._output_processor.damage is not None
        seqs = self._sequences.values()
        suspects = [seq for seq in seqs if planning or seq.computed or seq.pending]
        self._rebuild()
        if damaged:  # the cause has ended
            return self._take_events()
        if (cause := self._scheduler.isolation.failed(suspects)) is not None:
            self._events += self._output_processor.finish(cause, "error", error)
        return self._take_events()

    def fail(self) -> list[Event]:
        """The device failed: drop all steps in flight and end every request with "error"."""
        self._rebuild()
        self._scheduler.isolation.clear()
        for seq in [*self._sequences.values()]:
            self._events += self._output_processor.finish(seq, "error")
        self._events += self.alignments.fail()
        return self._take_events()

    def _rebuild(self) -> None:
        """Drop all steps in flight, pages and cached prefixes, which may never have been computed.
        Every request waits. Works from an inconsistent state."""
        self._in_flight.clear()
        self._decode_step, self._adjusted = None, []
        self._prefill_budget.reset()
        if self._draft_runner is not None:
            self._draft_runner.forget()
        self._pools.reset()
        self.media.reset()
        seqs = [*self._sequences.values()]
        for seq in seqs:
            seq.restart(self._pools.empty())
        self._scheduler.rebuild(seqs)
        self._output_processor.damage = None

    def _take_events(self) -> list[Event]:
        """The events that are not delivered yet."""
        events, self._events = self._events, []
        return events

    def forget_prefixes(self) -> None:
        """Drop all cached prefixes that no running request holds. The pages stay allocated to the
        pools."""
        self._pools.forget()

    def prefix_digest(self) -> bytes:
        """Digest of the prefix cache, for routers (`prefix_digest.py`)."""
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
            sampled_tokens=self._output_processor.sampled,
            preemptions=self._scheduler.preemptions,
            cached_tokens=self._scheduler.prefix_reuse.cached_tokens,
            drafted_tokens=self._output_processor.drafted,
            accepted_tokens=self._output_processor.accepted,
            pages_kept=sum(pool.cached_count for pool in self._pools.pools),
            answers=self.times.answers,
            queue_s=self.times.queue_s,
            compute_s=self.times.compute_s,
        )

    def check_integrity(self) -> None:
        """Raise AssertionError if the engine's state is inconsistent. O(everything): for tests."""
        self._scheduler.check_integrity()
        unfinished = {*self._scheduler.running, *self._scheduler.waiting}
        if unfinished != set(self._sequences.values()):
            raise AssertionError("the scheduler's sequences are not the engine's")
        self.adapters.check_integrity(seq.adapter for seq in unfinished)
        self.media.check_integrity(span for seq in unfinished for span in seq.media)
        rows = [row for step in self._in_flight for row in step.rows if row.prompt_index < 0]
        if any(seq.pending != sum(r.width for r in rows if r.seq is seq) for seq in unfinished):
            raise AssertionError("pending tokens do not match the steps in flight")
