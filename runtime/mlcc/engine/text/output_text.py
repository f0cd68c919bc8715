"""Output text of one request: tokens in, certain text out, and stop strings.

Joins `detokenizer.py`, `stop_strings.py` and `logprobs.py`; knows nothing about scheduling or
pages. `DeferredText` makes the text of an engine's events in another thread, where the text decides
nothing (`text_decides`); `worker/worker.py` uses it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mlcc.engine.events import Event, Finished, TextDelta
from mlcc.engine.request import Request, SamplingParams
from mlcc.engine.text.detokenizer import Detokenizer, Piece, Tokenizer, Window
from mlcc.engine.text.logprobs import HeldLogprob, OutputLogprobs, TokenLogprob, TokenTexts
from mlcc.engine.text.stop_strings import StopChecker


class OutputText:
    """The growing text of one output; without a tokenizer it stays empty. texts: of its tokens,
    if log-probabilities are reported. shown: special tokens shown as text. pieces: detokenizer
    cache."""

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
        """Whether log-probabilities are reported."""
        self.matched: str | None = None
        """The stop string that ended the output, if one did."""

    @property
    def held_logprobs(self) -> Sequence[HeldLogprob]:
        """Those of tokens whose text is not out yet."""
        return self._logprobs.held if self._logprobs else ()

    def restore_logprobs(self, held: Sequence[HeldLogprob]) -> None:
        """Restore those of tokens that were pushed again. Raises ValueError if the tokens
        differ."""
        if self._logprobs is not None:
            self._logprobs.restore(held)
        elif held:
            raise ValueError("log-probabilities that were not requested")

    def push(self, token: int) -> str:
        """Add a token. Returns the text that is certain now."""
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
        """Log-probabilities of the tokens of `text`, which has just come out, after the last pushed
        token, or after a flush."""
        if self._logprobs is None:
            return ()
        if token is not None:
            self._logprobs.push(token, logprob, top)
        if self.matched is not None:
            return self._logprobs.cut(text)
        held = 0 if self._checker is None else self._checker.held
        return self._logprobs.advance(text, held)


def text_decides(sampling: SamplingParams) -> bool:
    """Whether the rest of an output, or what is reported of it, depends on its text."""
    return bool(sampling.stop) or sampling.logprobs is not None


class DeferredText:
    """Texts of the unfinished requests of an engine with `defer_text`. One thread at a time."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._pieces: dict[Window, Piece] = {}
        """Detokenizer cache."""
        self._outputs: dict[str, OutputText] = {}

    def begin(self, request: Request, output_ids: Iterable[int] = ()) -> None:
        """The engine took a request: its events follow. Does nothing if the engine makes its text.
        output_ids: tokens of its output whose text is known elsewhere."""
        if not text_decides(request.sampling):
            output = self._outputs[request.id] = OutputText(
                self._tokenizer, request.prompt, (), None, request.shown, self._pieces
            )
            for token in output_ids:
                output.push(token)

    def add_text(self, events: Iterable[Event]) -> list[Event]:
        """The same events with their text."""
        found: list[Event] = []
        for event in events:
            output = self._outputs.get(event.request_id)
            if output is None:
                found.append(event)
            elif isinstance(event, TextDelta):
                found.append(_with_text(output, event))
            else:
                found += self._end(output, event)
        return found

    def clear(self) -> None:
        """All unfinished requests failed, without events."""
        self._outputs.clear()

    def _end(self, output: OutputText, event: Finished) -> list[Event]:
        del self._outputs[event.request_id]
        text = output.flush()
        return [TextDelta(event.request_id, text), event] if text else [event]


def _with_text(output: OutputText, event: TextDelta) -> TextDelta:
    if not event.token_ids:
        return event
    text = "".join(map(output.push, event.token_ids))
    return TextDelta(
        event.request_id,
        text,
        event.token_ids,
        event.logprobs,
        event.token_logprobs,
        event.prompt_logprobs,
    )
