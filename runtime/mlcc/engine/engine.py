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
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import islice, repeat

from mlcc.engine.adapters import AdapterSlots
from mlcc.engine.adjust_tables import AdjustLayout
from mlcc.engine.adjuster import Adjuster
from mlcc.engine.adjustments import Adjustments
from mlcc.engine.answer import AnswerText
from mlcc.engine.batch import Batch, Capacity, Result, int32
from mlcc.engine.caches import CachePools
from mlcc.engine.choices import Choices
from mlcc.engine.detokenize import Piece, Tokenizer, Window
from mlcc.engine.drafts import DraftModel, Drafts
from mlcc.engine.events import Event, Finished, TextDelta
from mlcc.engine.family import Families
from mlcc.engine.grammar import Grammar
from mlcc.engine.guesses import Speculator
from mlcc.engine.later_text import text_decides
from mlcc.engine.limits import check_capacity, check_request, check_result, token_limit
from mlcc.engine.logprobs import PromptLogprobs
from mlcc.engine.moving import Moves
from mlcc.engine.pace import Pace
from mlcc.engine.packing import AdjustedSequence, adjust, pack
from mlcc.engine.request import FinishReason, Request
from mlcc.engine.sampling import derive_seed, stream_of
from mlcc.engine.scheduler import Scheduler
from mlcc.engine.sequence import TokenSequence
from mlcc.engine.stats import Stats
from mlcc.engine.steady import SteadyDecode
from mlcc.engine.thinking import ThinkingGrammar
from mlcc.engine.token_texts import TokenTexts, breaks_of
from mlcc.engine.verify import Sampled, Step, sampled, verified
from mlcc.errors import InvalidRequestError, UnsupportedError


class Engine:
    """Continuous batching for one model on one executor.

    `tokenizer` may be None for drivers that want tokens only. `seed` is the base from which
    requests that bring no seed get theirs, by order of arrival. `prefix_cache`: what was computed
    for one request is used for others that begin with the same tokens (and the same `scope`).
    `text_later`: events have no text where it decides nothing; `LaterText` adds it.
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
        text_later: bool = False,
        speculator: Speculator | None = None,
        draft: DraftModel | None = None,
    ) -> None:
        check_capacity(capacity)
        self.capacity = capacity
        self._eos_ids = frozenset(eos_ids)
        self._tokenizer = tokenizer
        self._pieces: dict[Window, Piece] = {}
        """What tokens added to answers so far."""
        self._texts = TokenTexts(tokenizer, capacity.vocab_size) if tokenizer else None
        self._text_later = text_later
        self._seed = seed
        self._pools = CachePools(capacity)
        self._pace = Pace()
        self._speculator = speculator
        self._drafts = Drafts(draft, speculator, self._pools) if draft and speculator else None
        self._scheduler = Scheduler(capacity, self._pools, self._pace, prefix_cache, speculator)
        self._families = Families()
        self.adapters = AdapterSlots(capacity.layout.adapter_slots)
        """Those that requests may name; what is in their slots, who drives the device writes."""
        self._live: dict[str, TokenSequence] = {}
        self._in_flight: deque[Step] = deque()
        """Every step planned and not committed."""
        books = self._live, self._in_flight, self._pools, self._scheduler
        self.moves = Moves(capacity, books, self._sequence, self._enter)
        """How a half-computed request leaves, and how one of another engine goes on."""
        self._adjust_layout = AdjustLayout.of(capacity.layout, capacity.vocab_size)
        self._adjusted: list[AdjustedSequence] = []
        """Of the step planned last."""
        self._steady: SteadyDecode | None = None
        """Makes the next step, if the last only decoded."""
        self._steps = self._requests = self._computed = self._sampled = 0
        self._drafted = self._accepted = 0

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
        self._validate(request, grammar)
        grammar = self._thinking(request, grammar)
        limit = token_limit(request, self.capacity)
        sampling, arrival = request.sampling, self._requests
        texts = None if sampling.logprobs is None else self._texts
        writer = None if self._text_later and not text_decides(sampling) else self._tokenizer
        answer = AnswerText(
            writer, request.prompt, sampling.stop, texts, request.shown, self._pieces
        )
        tokens, caches = int32(request.prompt), self._pools.empty()
        ends = frozenset() if sampling.ignore_eos else self._eos_ids
        ends = ends.union(sampling.stop_token_ids)
        adjuster = None
        if sampling.adjusts or grammar:
            own, words = ends | self._eos_ids if grammar else ends, self._adjust_layout.mask_words
            breaks = partial(breaks_of, self._texts, sampling.dry_sequence_breakers)
            adjuster = Adjuster(sampling, tokens, own, grammar, words, breaks)
        choices = Choices.of(sampling, stream)
        seq = TokenSequence(request, arrival, limit, stream, ends, answer, tokens, caches)
        seq.adjuster, seq.grammar, seq.choices = adjuster, grammar, choices
        seq.family = self._families.join(request, tokens)
        if sampling.prompt_logprobs and self._texts is not None:
            seq.prompt_logprobs = PromptLogprobs(self._texts, tokens[:])
        return seq

    def _enter(self, seq: TokenSequence) -> None:
        if seq.request.adapter:
            seq.adapter = self.adapters.join(seq.request.adapter)
        foresees = (seq.adjuster is None or seq.adjuster.foresees) and not seq.exact
        if self._speculator is not None and foresees:  # answers of its own adapter's
            tree = self._pools.tree
            seq.guesses = self._speculator.open(seq.request, seq.tokens, tree, seq.scope)
        self._requests += 1
        self._live[seq.request.id] = seq

    def cancel(self, request_id: str) -> list[Event]:
        """End a request now; returns its last events, none if it is unknown or already ended."""
        seq = self._live.get(request_id)
        return [] if seq is None else self._finish(seq, "cancelled")

    def plan(self, into: memoryview | None = None) -> Batch | None:
        """The next step, or None if there is nothing to run (before the next commit).

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
        batch = steady.step(self._steps, into)
        if batch is not None:
            scheduler.again(steady.chunks)
            self._in_flight.append(Step(steady.rows, batch.num_tokens))
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
        scheduler.remember(chunks)
        self._in_flight.append(Step(rows, batch.num_tokens if scheduler.decodes else 0))
        whole = len(chunks) == len(scheduler.running) and scheduler.is_settled
        plain = whole and self._speculator is None
        if plain and SteadyDecode.may_follow(chunks, rows):
            self._steady = SteadyDecode(batch, chunks, rows, self._pools, scheduler.changes)
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
        if self._speculator is not None and step.decoded:
            self._speculator.cost.took(step.decoded, seconds)
        events: list[Event] = []
        tops: Iterable[Sequence[tuple[int, float]]] = result.top_logprobs or repeat(())
        found = zip(result.tokens, result.logprobs, tops)  # noqa: B905
        for (seq, told, draft), (token, logprob, top) in zip(step.rows, found):  # noqa: B905
            more = sampled(islice(found, len(draft))) if draft else ()
            if seq.finished:  # while this step was in flight
                continue
            if told >= 0:
                if seq.prompt_logprobs is not None:
                    seq.prompt_logprobs.put(told, float(logprob), top)
                continue
            if seq.prompt_logprobs is not None:
                prompt, seq.prompt_logprobs = seq.prompt_logprobs.told(), None
                events.append(TextDelta(seq.request.id, "", prompt=prompt))
            seq.pending -= 1 + len(draft)
            if draft:
                self._verify(seq, draft, [Sampled(int(token), float(logprob), top), *more], events)
            else:
                self._take(seq, int(token), float(logprob), top, events)
                if seq.grammar is not None:
                    self._jump(seq, seq.grammar, events)
        return events

    def fail(self) -> list[Event]:
        """The device failed: forget all steps in flight and end every request with "error"."""
        self._in_flight.clear()
        self._pace.forget()
        if self._drafts is not None:
            self._drafts.forget()
        events = [event for seq in [*self._live.values()] for event in self._finish(seq, "error")]
        self.forget_prefixes()  # their pages may never have been computed
        return events

    def forget_prefixes(self) -> None:
        """The prefix cache keeps nothing but what live requests hold. The pages stay taken."""
        self._pools.forget()

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
            sampled_tokens=self._sampled,
            preemptions=self._scheduler.preemptions,
            cached_tokens=self._scheduler.cached_tokens,
            drafted_tokens=self._drafted,
            accepted_tokens=self._accepted,
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

    def _validate(self, request: Request, grammar: Grammar | None) -> None:
        if (structure := request.structure) is not None and grammar is None:
            raise UnsupportedError(
                f"'{structure.field}' needs what reads grammars, and there is none here; leave it "
                "out",
                param=structure.field or None,
                code="unsupported_parameter",
            )
        if request.id in self._live:
            raise InvalidRequestError(
                f"request id {request.id!r} is already in use; choose another", param="id"
            )
        vocab, context = self.capacity.vocab_size, self.capacity.context
        check_request(request, vocab, context, self._tokenizer is not None)
        self.adapters.check(request.adapter)

    def _thinking(self, request: Request, grammar: Grammar | None) -> Grammar | None:
        """Its grammar behind its reasoning."""
        if request.reasoning is None or self._tokenizer is None:
            return grammar
        decode, words = self._tokenizer.decode, self._adjust_layout.mask_words
        ends = self._eos_ids.union(request.sampling.stop_token_ids)
        return ThinkingGrammar(request.reasoning, grammar, decode, words, ends)

    def _verify(
        self,
        seq: TokenSequence,
        draft: tuple[int, ...],
        sampled: list[Sampled],
        events: list[Event],
    ) -> None:
        """Take what guesses brought."""

        def take(one: Sampled) -> bool:
            self._take(seq, *one, events)
            said = len(seq.tokens)
            if seq.grammar is not None:
                self._jump(seq, seq.grammar, events)
            return len(seq.tokens) == said and not seq.finished

        accepted = seq.accepted
        right = verified(seq, draft, sampled, take)
        self._drafted += len(draft)
        self._accepted += seq.accepted - accepted
        if seq.guesses is not None:
            seq.guesses.learn(len(draft), right)
        if not seq.finished:
            self._scheduler.ahead.settle(seq, right)

    def _take(
        self,
        seq: TokenSequence,
        token: int,
        logprob: float,
        top: Sequence[tuple[int, float]],
        events: list[Event],
    ) -> None:
        """Append a token to its sequence, and end it where it ends."""
        grammar, answer = seq.grammar, seq.answer
        if grammar is not None and grammar.failed:  # so any token could have come
            return self._end(seq, "length", events)
        seq.tokens.append(token)
        self._sampled += 1
        if seq.adjuster is not None:
            seq.adjuster.push(token)
        if seq.choices is not None:
            seq.choices.push(logprob)
        if token in seq.ends:
            return self._end(seq, "stop", events)
        if grammar is not None:
            grammar.accept(token)
        text = answer.push(token)
        told = answer.told(text, token, logprob, top) if answer.tells else ()
        events.append(TextDelta(seq.request.id, text, (token,), (logprob,), told))
        if answer.matched is not None or (grammar is not None and grammar.ended):
            return self._end(seq, "stop", events)
        if len(seq.tokens) >= seq.limit:
            self._end(seq, "length", events)
        return None

    def _jump(self, seq: TokenSequence, grammar: Grammar, events: list[Event]) -> None:
        """Append what its grammar forces, to be computed in one step as a prompt is."""
        if seq.finished:
            return
        for token in grammar.forced():
            top = ((token, 0.0),)[: seq.request.sampling.logprobs or 0]
            self._take(seq, token, 0.0, top, events)
            if seq.finished:
                return

    def _end(self, seq: TokenSequence, reason: FinishReason, events: list[Event]) -> None:
        events += self._finish(seq, reason)

    def _finish(self, seq: TokenSequence, reason: FinishReason) -> list[Event]:
        seq.finished = True
        del self._live[seq.request.id]
        self._families.leave(seq.request)
        self._scheduler.remove(seq)
        if seq.adapter is not None:
            self.adapters.leave(seq.adapter)
        text, matched = seq.answer.flush(), seq.answer.matched
        if matched is not None and reason == "length":
            reason = "stop"
        prompt, cached = seq.prompt_tokens, seq.cached or 0
        said, name = len(seq.tokens) - prompt, seq.request.id
        done = Finished(name, reason, prompt, said, matched, cached, seq.drafted, seq.accepted)
        told = seq.answer.told(text)
        return [TextDelta(seq.request.id, text, told=told), done] if text or told else [done]
