"""What steps say, said to the sequences: tokens are appended to answers, which end where they end.

The half of the engine behind the device (`engine.py` is whole): it plans nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice, repeat

from mlcc.engine.batch.batch import Result
from mlcc.engine.events import Event, Finished, TextDelta
from mlcc.engine.lora import AdapterSlots
from mlcc.engine.request import FinishReason
from mlcc.engine.sampling.grammar import Grammar
from mlcc.engine.sampling_group import SamplingGroups
from mlcc.engine.scheduler.packing import Row
from mlcc.engine.scheduler.scheduler import Scheduler
from mlcc.engine.scheduler.verifier import Sampled, sampled, verified
from mlcc.engine.sequence import TokenSequence
from mlcc.errors import DeviceError


class OutputProcessor:
    """Of one engine, whose books these are."""

    def __init__(
        self,
        live: dict[str, TokenSequence],
        scheduler: Scheduler,
        sampling_groups: SamplingGroups,
        adapters: AdapterSlots,
    ) -> None:
        self._live, self._scheduler = live, scheduler
        self._sampling_groups, self._adapters = sampling_groups, adapters
        self.sampled = 0
        """Tokens of answers, those among them that a grammar forced."""
        self.drafted = 0
        """Guesses that were tried, and those that were right."""
        self.accepted = 0

    def take(self, rows: Sequence[Row], result: Result) -> list[Event]:
        """A step's result, which is checked; returns what happened to its requests."""
        events: list[Event] = []
        tops: Iterable[Sequence[tuple[int, float]]] = result.top_logprobs or repeat(())
        found = zip(result.tokens, result.logprobs, tops)  # noqa: B905
        for (seq, told, draft), (token, logprob, top) in zip(rows, found):  # noqa: B905
            more = sampled(islice(found, len(draft))) if draft else ()
            if seq.finished:  # while this step was in flight
                continue
            if told >= 0:
                if seq.prompt_logprobs is not None:
                    seq.prompt_logprobs.put(told, float(logprob), top)
                continue
            if seq.prompt_logprobs is not None:
                prompt, seq.prompt_logprobs = seq.prompt_logprobs.told(), None
                events.append(TextDelta(seq.request.id, "", prompt_logprobs=prompt))
            seq.pending -= 1 + len(draft)
            if draft:
                self._verify(seq, draft, [Sampled(int(token), float(logprob), top), *more], events)
            else:
                self._take(seq, int(token), float(logprob), top, events)
                if seq.grammar is not None:
                    self._jump(seq, seq.grammar, events)
        return events

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
        self.drafted += len(draft)
        self.accepted += seq.accepted - accepted
        if seq.draft_state is not None:
            seq.draft_state.learn(len(draft), right)
        if not seq.finished:
            self._scheduler.draft_planner.settle(seq, right)

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
        self.sampled += 1
        if seq.logits_processor is not None:
            seq.logits_processor.push(token)
        if seq.filter_state is not None:
            seq.filter_state.push(logprob)
        if token in seq.ends:
            return self._end(seq, "stop", events)
        if grammar is not None:
            grammar.accept(token)
        text = answer.push(token)
        told = answer.told(text, token, logprob, top) if answer.wants_logprobs else ()
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
        events += self.finish(seq, reason)

    def finish(self, seq: TokenSequence, reason: FinishReason) -> list[Event]:
        """End it; returns its last events."""
        seq.finished = True
        del self._live[seq.request.id]
        self._sampling_groups.leave(seq.request)
        self._scheduler.remove(seq)
        if seq.adapter is not None:
            self._adapters.leave(seq.adapter)
        text, matched = seq.answer.flush(), seq.answer.matched
        if matched is not None and reason == "length":
            reason = "stop"
        prompt, cached = seq.prompt_tokens, seq.cached or 0
        said, name = len(seq.tokens) - prompt, seq.request.id
        done = Finished(name, reason, prompt, said, matched, cached, seq.drafted, seq.accepted)
        told = seq.answer.told(text)
        return (
            [TextDelta(seq.request.id, text, token_logprobs=told), done] if text or told else [done]
        )


def check_result(result: Result, rows: int, vocab: int) -> None:
    """What a device answered is of the step that was planned. Raises DeviceError."""
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
