"""Token ids to text, a token at a time, never half a character.

Decoding each token alone is wrong (a character may span tokens, a leading space may be dropped) and
decoding everything each time is quadratic. Method: the two offsets of text-generation-inference and
vLLM. Decode a short window of tokens with and without the new ones; the difference is the new text.
Not a tokenizer: that is behind the `Tokenizer` port.

`OutputText` is the output text of one request: tokens in, certain text out, with stop strings
(`stop_checker.py`) and log-probabilities (`logprobs.py`). `DeferredText` makes the text of an
engine's events in another thread, where the text decides nothing (`text_decides`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from mlcc.engine.events import Event, Finished, TextDelta
from mlcc.engine.request import Request, SamplingParams
from mlcc.engine.text.logprobs import HeldLogprob, OutputLogprobs, TokenLogprob
from mlcc.engine.text.stop_checker import ContentParser, ContentStopChecker, StopChecker
from mlcc.engine.text.tokenizer import BROKEN, Tokenizer, TokenTexts
from mlcc.errors import public_error

_CONTEXT = 5
"""Tokens of the prompt that give the first output token its context."""
_HOLD = 8
"""Tokens that may wait for the rest of a character; the longest has 4 bytes."""
_MOST_KNOWN = 1 << 13
"""Entries of the cache; a few megabytes."""


Window = tuple[int, ...]


class Piece(NamedTuple):
    """Effect of a token after a window whose text is out."""

    new: str
    """The text that it adds."""
    ids: Window
    """The window afterwards, whose text is out too."""
    text: str


class Detokenizer:
    """The text after a prompt. Work per token is bounded by the window's length.

    shown: special tokens that are not skipped, and their spelling. known: a cache shared by outputs
    of one tokenizer, which often repeat the same text.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        prompt: Sequence[int] = (),
        shown: Mapping[int, str] | None = None,
        known: dict[Window, Piece] | None = None,
    ) -> None:
        self._tokenizer = tokenizer
        self._shown = shown or {}
        self._known = {} if known is None else known
        self._ids = tuple(prompt[-_CONTEXT:])
        """The window: `_read` tokens whose text is out, then those whose text is not."""
        self._read = len(self._ids)
        self._text = self._decode(self._ids)
        """Text of the first `_read` tokens."""

    def push(self, token: int) -> str:
        """Add a token. Returns the text that became certain, often ""."""
        if self._shown and (written := self._shown.get(token)) is not None:
            return self.flush() + written  # what follows has the context of what was before
        ids = self._ids = (*self._ids, token)
        waiting = len(ids) - self._read
        if waiting == 1 and (piece := self._known.get(ids)) is not None:
            new, self._ids, self._text = piece
            self._read = len(self._ids)
            return new
        text = self._decode(ids)
        if text == self._text:
            if waiting > _HOLD:
                self._ids = ids[:-1]  # a run of tokens without text must not grow the window
            return ""
        if text.endswith(BROKEN):
            return self._hold(text, waiting)
        new = self._advance(len(ids), text)
        if waiting == 1:
            self._remember(ids, new)
        return new

    def flush(self) -> str:
        """The rest, broken or not, once no more tokens will come."""
        waiting = len(self._ids) > self._read
        return self._advance(len(self._ids), self._decode(self._ids)) if waiting else ""

    def _decode(self, ids: Window) -> str:
        return self._tokenizer.decode(list(ids)) if ids else ""

    def _remember(self, ids: Window, new: str) -> None:
        """Cache the effect of the last of these tokens after the others, whose text was out."""
        if len(self._known) >= _MOST_KNOWN:
            self._known.clear()
        self._known[ids] = Piece(new, self._ids, self._text)

    def _advance(self, cut: int, text: str) -> str:
        """Emit the text of the window's tokens before `cut`, and move the window."""
        before = self._text
        while before.endswith(BROKEN) and not text.startswith(before):
            before = before[:-1]  # the prompt ended within a character, which is whole now
        if cut > self._read:
            self._ids = self._ids[self._read :]
            self._read = cut - self._read
            self._text = self._decode(self._ids[: self._read])
        return text[len(before) :]

    def _hold(self, text: str, waiting: int) -> str:
        """Wait for the rest of a character, unless there have been too many broken bytes."""
        if not self._decode(self._ids[-1:]):
            self._ids = self._ids[:-1]  # a special token amid the bytes of a character
            return ""
        if waiting < _HOLD:
            return ""
        cut = self._clean_cut(text)
        return self._advance(cut, self._decode(self._ids[:cut]))

    def _clean_cut(self, text: str) -> int:
        """The last place between characters where the waiting tokens can be cut.

        At most 3 tokens belong to a character that is not complete.
        """
        count = len(self._ids)
        for cut in range(count - 1, max(self._read, count - 5), -1):
            if self._decode(self._ids[:cut]) + self._decode(self._ids[cut:]) == text:
                return cut
        return count


class OutputText:
    """The growing text of one output; without a tokenizer it stays empty. texts: of its tokens,
    if log-probabilities are reported. shown: special tokens shown as text. pieces: detokenizer
    cache. include_stop: the text ends behind a stop string, not before it. parser: stop strings
    count in the content that it finds; None = everywhere."""

    def __init__(
        self,
        tokenizer: Tokenizer | None,
        prompt: Sequence[int],
        stop: Sequence[str],
        texts: TokenTexts | None = None,
        shown: Sequence[tuple[int, str]] = (),
        pieces: dict[Window, Piece] | None = None,
        include_stop: bool = False,
        parser: ContentParser | None = None,
    ) -> None:
        self._detokenizer = (
            Detokenizer(tokenizer, prompt, dict(shown), pieces) if tokenizer else None
        )
        self._checker: StopChecker | ContentStopChecker | None = None
        if stop:
            self._checker = (
                StopChecker(stop, include_stop)
                if parser is None
                else ContentStopChecker(stop, include_stop, parser)
            )
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

    def flush(self, cut: bool = False) -> str:
        """The text held back, once no more tokens will come. cut: the token limit ended it."""
        if self._detokenizer is None or self.matched is not None:
            return ""
        text = self._detokenizer.flush()
        if self._checker is None:
            return text
        text = self._checked(self._checker, text)
        if self.matched is None:
            text += self._checker.flush(cut)
            self.matched = self._checker.matched
        return text

    def _checked(self, checker: StopChecker | ContentStopChecker, text: str) -> str:
        text = checker.push(text)
        self.matched = checker.matched
        return text

    def end_logprobs(self, token: int, logprob: float, top: Sequence[tuple[int, float]]) -> None:
        """The token that ends the output, which is not pushed; a flush follows."""
        if self._logprobs is not None:
            self._logprobs.push(token, logprob, top)

    def take_logprobs(
        self,
        text: str,
        token: int | None = None,
        logprob: float = 0.0,
        top: Sequence[tuple[int, float]] = (),
    ) -> Sequence[TokenLogprob]:
        """Log-probabilities of the tokens of `text`, which has just come out, after the last pushed
        token, or, without a token, after a flush."""
        if self._logprobs is None:
            return ()
        if token is not None:
            self._logprobs.push(token, logprob, top)
        if self.matched is not None:
            return self._logprobs.cut(text)
        if token is None:
            return self._logprobs.end(text)
        held = 0 if self._checker is None else self._checker.held
        return self._logprobs.advance(text, held)


def text_decides(sampling: SamplingParams) -> bool:
    """Whether the rest of an output, or what is reported of it, depends on its text."""
    return bool(sampling.stop) or sampling.logprobs is not None


class DeferredText:
    """Texts of the unfinished requests of an engine with `defer_text`. One thread at a time.

    A request whose text cannot be made ends with "error" alone; its later events are dropped.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._pieces: dict[Window, Piece] = {}
        """Detokenizer cache."""
        self._outputs: dict[str, OutputText] = {}
        self._failed: set[str] = set()
        """Requests that ended here and not yet in the engine."""

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
            try:
                found += self._texts_of(event)
            except Exception as error:
                found.append(self.fail(event.request_id, error))
                if isinstance(event, Finished):  # the engine has ended it too
                    self._failed.remove(event.request_id)
        return found

    def fail(self, request_id: str, error: Exception) -> Finished:
        """The text of a request cannot be made: its last event, before that of the engine."""
        self._outputs.pop(request_id, None)
        self._failed.add(request_id)
        return Finished(request_id, "error", 0, 0, error=public_error(error))

    def _texts_of(self, event: Event) -> list[Event]:
        """An event with its text."""
        if event.request_id in self._failed:
            if isinstance(event, Finished):
                self._failed.remove(event.request_id)
            return []
        output = self._outputs.get(event.request_id)
        if output is None:
            return [event]
        return (
            [_with_text(output, event)]
            if isinstance(event, TextDelta)
            else self._end(output, event)
        )

    def clear(self) -> None:
        """All unfinished requests failed, without events."""
        self._outputs.clear()
        self._failed.clear()

    def _end(self, output: OutputText, event: Finished) -> list[Event]:
        text = output.flush() if event.error is None else ""
        del self._outputs[event.request_id]
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
