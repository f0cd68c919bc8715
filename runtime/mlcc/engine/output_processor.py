"""Applies step results to sequences: appends tokens, checks for the end and makes events.

A sequence whose row cannot be processed ends alone with "error"; the rows of others are processed.
It plans nothing; `engine.py` owns the loop.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice, repeat

from mlcc.engine.alignment import Alignments
from mlcc.engine.batch.batch import Result
from mlcc.engine.events import Event, Finished, TextDelta
from mlcc.engine.lora import AdapterSlots
from mlcc.engine.media_embeddings import MediaEmbeddings
from mlcc.engine.request import FinishReason
from mlcc.engine.sampling.grammar import Grammar, Structure
from mlcc.engine.sampling_group import SamplingGroups
from mlcc.engine.scheduler.packing import Row
from mlcc.engine.scheduler.scheduler import Scheduler
from mlcc.engine.scheduler.verifier import Sampled, sampled_rows, verify
from mlcc.engine.sequence import TokenSequence
from mlcc.engine.text.logprobs import TokenLogprob
from mlcc.errors import DeviceError, InvalidRequestError, MlccError, public_error

_NO_LOGPROBS: Sequence[TokenLogprob] = ()


class OutputProcessor:
    """The output side of one engine."""

    def __init__(
        self,
        sequences: dict[str, TokenSequence],
        scheduler: Scheduler,
        sampling_groups: SamplingGroups,
        adapters: AdapterSlots,
        media: MediaEmbeddings,
    ) -> None:
        self._sequences, self._scheduler = sequences, scheduler
        self._sampling_groups, self._adapters = sampling_groups, adapters
        self._media = media
        self.sampled = 0
        """Output tokens, including those forced by a grammar."""
        self.drafted = 0
        """Draft tokens verified, and how many were accepted."""
        self.accepted = 0
        self.alignments = Alignments()
        """Answers that have ended but for where their tokens are in the sound."""
        self.damage: Exception | None = None
        """An error that left a finished sequence's pages or place allocated; `Engine.recover`
        rebuilds the state."""

    def process(self, rows: Sequence[Row], result: Result, events: list[Event]) -> None:
        """Process a checked result. Appends the events of its requests to `events`, in order: those
        appended before an exception are valid."""
        tops: Iterable[Sequence[tuple[int, float]]] = result.top_logprobs or repeat(())
        sampled = zip(result.tokens, result.logprobs, tops)  # noqa: B905
        for (seq, prompt_index, draft), (token, logprob, top) in zip(rows, sampled):  # noqa: B905
            more = sampled_rows(islice(sampled, len(draft))) if draft else ()
            if seq.finished:  # while this step was in flight
                continue
            try:
                if prompt_index >= 0:
                    if seq.prompt_logprobs is not None:
                        seq.prompt_logprobs.set(prompt_index, float(logprob), top)
                elif draft or seq.prompt_logprobs is not None or seq.grammar is not None:
                    first = Sampled(int(token), float(logprob), top)
                    self._process_row(seq, draft, [first, *more], events)
                else:  # most rows
                    seq.pending -= 1
                    self._append(seq, int(token), float(logprob), top, events)
            except Exception as error:
                if not seq.finished:
                    events += self.finish(seq, "error", public_error(error))

    def _process_row(
        self,
        seq: TokenSequence,
        draft: tuple[int, ...],
        sampled: list[Sampled],
        events: list[Event],
    ) -> None:
        """Process what was sampled for a sequence: one token, and one after each draft token."""
        if seq.prompt_logprobs is not None:
            prompt, seq.prompt_logprobs = seq.prompt_logprobs.all(), None
            events.append(TextDelta(seq.request.id, "", prompt_logprobs=prompt))
        seq.pending -= 1 + len(draft)
        if draft:
            self._append_draft(seq, draft, sampled, events)
            return
        self._append(seq, *sampled[0], events)
        if seq.grammar is not None:
            self._append_forced(seq, seq.grammar, events)

    def _append_draft(
        self,
        seq: TokenSequence,
        draft: tuple[int, ...],
        sampled: list[Sampled],
        events: list[Event],
    ) -> None:
        """Append the accepted draft tokens, and the token that follows them."""

        def take(row: Sampled) -> bool:
            self._append(seq, *row, events)
            length = len(seq.tokens)
            if seq.grammar is not None:
                self._append_forced(seq, seq.grammar, events)
            return len(seq.tokens) == length and not seq.finished

        before = seq.accepted
        accepted = verify(seq, draft, sampled, take)
        self.drafted += len(draft)
        self.accepted += seq.accepted - before
        if seq.draft_state is not None:
            seq.draft_state.observe(len(draft), accepted)
        if not seq.finished:
            self._scheduler.draft_planner.settle(seq, accepted)

    def _append(
        self,
        seq: TokenSequence,
        token: int,
        logprob: float,
        top: Sequence[tuple[int, float]],
        events: list[Event],
    ) -> None:
        """Append a token to its sequence, and finish the sequence if it ends."""
        if seq.request.sampling.max_tokens == 0:  # it was sampled because each step does
            return self._end(seq, "length", events)
        grammar, output = seq.grammar, seq.output
        if grammar is not None and grammar.failed:  # its last mask allowed every token
            if not grammar.dead_end:
                return self._end(seq, "length", events)
            events += self.finish(seq, "error", _dead_end(seq.request.structure))
            return None
        seq.tokens.append(token)
        self.sampled += 1
        if seq.logits_processor is not None:
            seq.logits_processor.push(token)
        if seq.filter_state is not None:
            seq.filter_state.push(logprob)
        if token in seq.end_tokens:
            output.end_logprobs(token, logprob, top)
            return self._end(seq, "stop", events)
        if grammar is not None:
            grammar.accept(token)
        text = output.push(token)
        logprobs = output.take_logprobs(text, token, logprob, top) if output.wants_logprobs else ()
        events.append(TextDelta(seq.request.id, text, (token,), (logprob,), logprobs))
        if output.matched is not None or (grammar is not None and grammar.ended):
            return self._end(seq, "stop", events)
        if len(seq.tokens) >= seq.limit:
            self._end(seq, "length", events)
        return None

    def _append_forced(self, seq: TokenSequence, grammar: Grammar, events: list[Event]) -> None:
        """Append the tokens that the grammar forces; the next step computes them like a prompt."""
        if seq.finished:
            return
        for token in grammar.forced():
            top = ((token, 0.0),)[: seq.request.sampling.logprobs or 0]
            self._append(seq, token, 0.0, top, events)
            if seq.finished:
                return

    def _end(self, seq: TokenSequence, reason: FinishReason, events: list[Event]) -> None:
        events += self.finish(seq, reason)

    def finish(
        self, seq: TokenSequence, reason: FinishReason, error: MlccError | None = None
    ) -> list[Event]:
        """Finish a sequence. Returns its last events, whatever fails: a text that cannot be made
        ends it with "error", and `damage` is set if its pages could not be freed."""
        aligned = seq.request.aligned_rows and reason in ("stop", "length")
        place = Alignments.of(seq) if aligned else None
        self._detach(seq)
        text, logprobs = "", _NO_LOGPROBS
        try:
            text = seq.output.flush(reason == "length")
            logprobs = seq.output.take_logprobs(text)
        except Exception as failure:
            reason, error = "error", error or public_error(failure)
        matched = seq.output.matched
        if matched is not None and reason == "length":
            reason = "stop"
        prompt, cached = seq.prompt_tokens, seq.cached or 0
        length, name = len(seq.tokens) - prompt, seq.request.id
        counts = prompt, length, matched, cached, seq.drafted, seq.accepted
        done = Finished(name, reason, *counts, error=error)
        started = seq.arrived if seq.started is None else seq.started
        self._scheduler.times.add(reason, seq.arrived, started)
        last: list[Event] = [done]
        if place is not None and reason != "error":
            self.alignments.hold(seq, place, done)
            last = []
        if text or logprobs:
            return [TextDelta(name, text, token_logprobs=logprobs), *last]
        return last

    def _detach(self, seq: TokenSequence) -> None:
        """Remove a sequence from everything that references it."""
        seq.finished = True
        del self._sequences[seq.request.id]
        try:
            if seq.adapter is not None:
                self._adapters.leave(seq.adapter)
            if seq.sampling_group is not None:
                self._sampling_groups.leave(seq.request)
            if seq.media:
                self._media.leave(seq.media)
            self._scheduler.remove(seq)
        except Exception as error:
            self.damage = error


def _dead_end(structure: Structure | None) -> InvalidRequestError:
    """The error for a grammar that lets an answer begin in a way that has no end."""
    field = structure.field if structure else ""
    return InvalidRequestError(
        f"the answer ran into a dead end of the grammar in '{field}': no token may follow, and it "
        "is not complete; change what may come there (in a JSON Schema mostly the names that "
        "'patternProperties' leaves over, each of which may come once), or leave it out",
        param=field or None,
        code="grammar_dead_end",
    )


def check_result(result: Result, rows: int, vocab: int) -> None:
    """Check that a result fits the planned step. Raises DeviceError."""
    if len(result.tokens) != rows or len(result.logprobs) != rows:
        raise DeviceError(
            f"the device answered {len(result.tokens)} tokens and {len(result.logprobs)}"
            f" log-probabilities for {rows} rows; results must be committed in plan order"
        )
    for token in result.tokens:
        if not 0 <= token < vocab:
            raise DeviceError(
                f"the device sampled token {token}, the vocabulary is 0 .. {vocab - 1};"
                " the library does not fit the model"
            )
