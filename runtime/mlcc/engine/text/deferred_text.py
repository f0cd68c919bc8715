"""The text of answers, made of an engine's events by somebody else than who plans its steps.

Only where the text decides nothing: an answer that stop strings may end, or whose tokens' log
probabilities are told with their text, is written by the engine itself (`text_decides`). Events
come out as an engine that writes all text would give them; `worker/output_thread.py` is who calls
this.
"""

from __future__ import annotations

from collections.abc import Iterable

from mlcc.engine.events import Event, Finished, TextDelta
from mlcc.engine.request import Request, SamplingParams
from mlcc.engine.text.detokenizer import Piece, Tokenizer, Window
from mlcc.engine.text.output_text import OutputText


def text_decides(sampling: SamplingParams) -> bool:
    """Whether how an answer goes on, or what is told of it, depends on its text so far."""
    return bool(sampling.stop) or sampling.logprobs is not None


class DeferredText:
    """Of all live requests of one engine that was made with `defer_text`. One thread at a time."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._pieces: dict[Window, Piece] = {}
        """What tokens added to answers so far."""
        self._answers: dict[str, OutputText] = {}

    def begin(self, request: Request, said: Iterable[int] = ()) -> None:
        """The engine took it: its events follow. Nothing, if the engine writes its text. said:
        tokens of its answer whose text is known elsewhere."""
        if not text_decides(request.sampling):
            answer = self._answers[request.id] = OutputText(
                self._tokenizer, request.prompt, (), None, request.shown, self._pieces
            )
            for token in said:
                answer.push(token)

    def read(self, events: Iterable[Event]) -> list[Event]:
        """The same events with their text."""
        found: list[Event] = []
        for event in events:
            answer = self._answers.get(event.request_id)
            if answer is None:
                found.append(event)
            elif isinstance(event, TextDelta):
                found.append(_written(answer, event))
            else:
                found += self._end(answer, event)
        return found

    def clear(self) -> None:
        """All live requests failed, without events."""
        self._answers.clear()

    def _end(self, answer: OutputText, event: Finished) -> list[Event]:
        del self._answers[event.request_id]
        text = answer.flush()
        return [TextDelta(event.request_id, text), event] if text else [event]


def _written(answer: OutputText, event: TextDelta) -> TextDelta:
    if not event.token_ids:
        return event
    text = "".join(map(answer.push, event.token_ids))
    return TextDelta(
        event.request_id,
        text,
        event.token_ids,
        event.logprobs,
        event.token_logprobs,
        event.prompt_logprobs,
    )
