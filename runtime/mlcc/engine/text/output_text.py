"""The text side of one request: tokens in, certain text out, and whether a stop string came.

Joins `detokenize.py`, `stop.py` and `logprobs.py`; knows nothing about scheduling or pages.

The text of answers, made of an engine's events by somebody else than who plans its steps.

Only where the text decides nothing: an answer that stop strings may end, or whose tokens' log
probabilities are told with their text, is written by the engine itself (`text_decides`). Events
come out as an engine that writes all text would give them; `worker/output_thread.py` is who calls
this.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mlcc.engine.events import Event, Finished, TextDelta
from mlcc.engine.request import Request, SamplingParams
from mlcc.engine.text.detokenizer import Detokenizer, Piece, Tokenizer, Window
from mlcc.engine.text.logprobs import HeldLogprob, OutputLogprobs, TokenLogprob, TokenTexts
from mlcc.engine.text.stop_strings import StopChecker


class OutputText:
    """The growing text of one answer; without a tokenizer it stays empty. texts: of its tokens, if
    their log-probabilities are to be told. shown: special tokens that are text in it. pieces:
    what other answers have found."""

    def __init__(
        self,
        tokenizer: Tokenizer | None,
        prompt: Sequence[int],
        stop: Sequence[str],
        texts: TokenTexts | None = None,
        shown: Sequence[tuple[int, str]] = (),
        pieces: dict[Window, Piece] | None = None,
    ) -> None:
        self._detokenizer = (
            Detokenizer(tokenizer, prompt, dict(shown), pieces) if tokenizer else None
        )
        self._checker = StopChecker(stop) if stop else None
        self._logprobs = OutputLogprobs(texts) if texts else None
        self.wants_logprobs = texts is not None
        """Whether log-probabilities are told."""
        self.matched: str | None = None
        """The stop string that ended the answer, if one did."""

    @property
    def held_logprobs(self) -> Sequence[HeldLogprob]:
        """Of tokens whose text is not out yet."""
        return self._logprobs.held if self._logprobs else ()

    def restore_logprobs(self, held: Sequence[HeldLogprob]) -> None:
        """To tokens that were pushed again. Raises ValueError if they are others."""
        if self._logprobs is not None:
            self._logprobs.restore(held)
        elif held:
            raise ValueError("log-probabilities that nobody asked for")

    def push(self, token: int) -> str:
        """Add a token; returns the text that is certain now."""
        if self._detokenizer is None:
            return ""
        text = self._detokenizer.push(token)
        return text if self._checker is None else self._checked(self._checker, text)

    def flush(self) -> str:
        """The text held back, once no more tokens will come."""
        if self._detokenizer is None or self.matched is not None:
            return ""
        text = self._detokenizer.flush()
        if self._checker is None:
            return text
        return self._checked(self._checker, text) + self._checker.flush()

    def _checked(self, checker: StopChecker, text: str) -> str:
        text = checker.push(text)
        self.matched = checker.matched
        return text

    def take_logprobs(
        self,
        text: str,
        token: int | None = None,
        logprob: float = 0.0,
        top: Sequence[tuple[int, float]] = (),
    ) -> Sequence[TokenLogprob]:
        """The tokens of which `text` is made, which came out just now, with the last one that was
        pushed or, without, as all was flushed."""
        if self._logprobs is None:
            return ()
        if token is not None:
            self._logprobs.push(token, logprob, top)
        if self.matched is not None:
            return self._logprobs.cut(text)
        held = 0 if self._checker is None else self._checker.held
        return self._logprobs.advance(text, held)


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

    def begin(self, request: Request, output: Iterable[int] = ()) -> None:
        """The engine took it: its events follow. Nothing, if the engine writes its text. said:
        tokens of its answer whose text is known elsewhere."""
        if not text_decides(request.sampling):
            answer = self._answers[request.id] = OutputText(
                self._tokenizer, request.prompt, (), None, request.shown, self._pieces
            )
            for token in output:
                answer.push(token)

    def add_text(self, events: Iterable[Event]) -> list[Event]:
        """The same events with their text."""
        found: list[Event] = []
        for event in events:
            answer = self._answers.get(event.request_id)
            if answer is None:
                found.append(event)
            elif isinstance(event, TextDelta):
                found.append(_with_text(answer, event))
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


def _with_text(answer: OutputText, event: TextDelta) -> TextDelta:
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
