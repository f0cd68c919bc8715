"""Logits processor of one request: penalties, biases and banned tokens.

It keeps the history; `adjustments.py` writes the adjustments and the device applies them. A request
without any has no processor, and its steps no second upload.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping, Sequence
from itertools import chain, islice

from mlcc.engine.batch.adjust_tables import BIASES, HISTORY
from mlcc.engine.batch.adjustments import AdjustmentWriter, Penalties
from mlcc.engine.request import SamplingParams
from mlcc.engine.sampling.dry import Dry
from mlcc.engine.sampling.grammar import Grammar
from mlcc.engine.sampling.no_repeat_ngram import NoRepeatNgram

BANNED = -1e20
"""Added to the logit of a banned token: no probability remains in float32, and dividing by the
smallest temperature does not overflow. Infinity may not be used where a device assumes that there
is none (WGSL)."""


class LogitsProcessor:
    """Adjustments of one request. tokens: the known ones, to which the engine appends. ends: its
    end tokens; with a grammar always including the model's. mask_words: words of a grammar mask.
    breaks: whether a token interrupts a DRY match."""

    def __init__(
        self,
        sampling: SamplingParams,
        tokens: Sequence[int],
        ends: frozenset[int],
        grammar: Grammar | None = None,
        mask_words: int = 0,
        breaks: Callable[[int], bool] = lambda token: False,
    ) -> None:
        self._penalties = Penalties(
            sampling.repetition_penalty, sampling.frequency_penalty, sampling.presence_penalty
        )
        self._has_penalties = self._penalties != Penalties()
        self._bias = dict(sampling.logit_bias)
        words = sampling.bad_words + sampling.bad_words_ids
        self._bias.update((word[0], BANNED) for word in words if len(word) == 1)
        self._bias.update(dict.fromkeys(sampling.suppress_tokens, BANNED))
        self._first_bias = dict.fromkeys(sampling.begin_suppress_tokens, BANNED)
        self._phrases = [word for word in sampling.bad_words if len(word) > 1]
        self._whole_phrases = [word for word in sampling.bad_words_ids if len(word) > 1]
        self._min_tokens = sampling.min_tokens
        self._suppress_end = grammar is not None and sampling.ignore_eos
        self._grammar = grammar
        self._mask_words = mask_words if grammar else 0
        self._end_bias = dict.fromkeys(ends, BANNED)
        self._tokens, self._prompt = tokens, len(tokens)
        self._window = sampling.repeat_last_n if self._has_penalties else -1
        self._history: dict[int, int] = {}
        if sampling.repetition_penalty != 1:
            self._history = dict.fromkeys(tokens, 0)
        self._dry = Dry(sampling.dry, tokens, breaks) if sampling.dry.multiplier else None
        size = sampling.no_repeat_ngram_size
        self._ngrams = NoRepeatNgram(size, tokens) if size else None
        self._masks: Sequence[array[int] | None] = ()
        """Masks after each draft token of the last `lookahead`."""

    @property
    def max_words(self) -> int:
        """Most words of its lists in the next step."""
        history = len(self._history if self._window < 0 else self._recent())
        biases = len(self._bias) + len(self._end_bias) + len(self._first_bias)
        biases += len(self._phrases) + len(self._whole_phrases)
        if self._dry is not None:
            biases += len(self._dry.penalties())
        if self._ngrams is not None:
            biases += len(self._ngrams.banned())
        return len(HISTORY) * history + len(BIASES) * biases + self._mask_words

    @property
    def max_in_flight(self) -> int:
        """Output tokens that may be unknown when logits are adjusted: the device itself adds one to
        the history; everything else needs all tokens."""
        whole = self._grammar or self._dry or self._ngrams or self._window >= 0
        return 0 if whole or self._phrases or self._whole_phrases else 1

    def push(self, token: int) -> None:
        """Append a token."""
        if self._has_penalties and self._window < 0:
            self._history[token] = self._history.get(token, 0) + 1
        if self._dry is not None:
            self._dry.push(token)
        if self._ngrams is not None:
            self._ngrams.push(token)

    def applies_to(self, output_index: int) -> bool:
        """Whether the logits of output token number `output_index` are adjusted."""
        always = self._has_penalties or bool(self._bias) or self.max_in_flight == 0
        first = output_index == 0 and bool(self._first_bias)
        return always or first or output_index < self._min_tokens

    @property
    def supports_drafts(self) -> bool:
        """Whether logits after draft tokens can be adjusted; by DRY and for repeated n-grams they
        cannot."""
        return self._dry is None and self._ngrams is None

    def lookahead(self, draft: Sequence[int]) -> int:
        """Number of these draft tokens that the grammar allows."""
        if self._grammar is None:
            return len(draft)
        self._masks = self._grammar.lookahead(draft)
        return len(self._masks)

    def write(
        self,
        writer: AdjustmentWriter,
        row: int,
        output_index: int,
        in_flight: int,
        draft: Sequence[int] = (),
    ) -> None:
        """Write the adjustments of a row that samples output token `output_index`. in_flight: row
        of the previous step that samples the token before it; -1 = it is known. draft: draft tokens
        before it, from `lookahead`."""
        writer.row(
            row,
            self._penalties,
            history=self._history_with(draft),
            in_flight=in_flight if self._has_penalties else -1,
            bias=self._biases(output_index, draft),
            mask=0 if (mask := self._mask(draft)) is None else writer.mask(mask),
        )

    def _mask(self, draft: Sequence[int]) -> array[int] | None:
        if self._grammar is None:
            return None
        return self._masks[len(draft) - 1] if draft else self._grammar.allowed()

    def _history_with(self, draft: Sequence[int]) -> Mapping[int, int]:
        """The history, with draft tokens appended."""
        if self._window >= 0:
            return self._recent(draft)
        if not draft or not self._has_penalties:
            return self._history
        found = dict(self._history)
        for token in draft:
            found[token] = found.get(token, 0) + 1
        return found

    def _recent(self, draft: Sequence[int] = ()) -> dict[int, int]:
        """Counts in the window of last tokens; 0 = only in the prompt."""
        count, found = len(self._tokens) + len(draft), dict[int, int]()
        first = max(0, count - self._window)
        output_index = chain(
            islice(self._tokens, first, None), draft[max(0, first - len(self._tokens)) :]
        )
        for at, token in enumerate(output_index, first):
            found[token] = found.get(token, 0) + (at >= self._prompt)
        return found

    def _biases(self, output_index: int, draft: Sequence[int] = ()) -> Mapping[int, float]:
        """Biases of the next token."""
        bias = self._bias
        if self._dry is not None:
            bias = dict(bias)
            for token, lost in self._dry.penalties().items():
                bias[token] = bias.get(token, 0.0) - lost
        if self._ngrams is not None:
            bias = {**bias, **dict.fromkeys(self._ngrams.banned(), BANNED)}
        for words, first in ((self._phrases, self._prompt), (self._whole_phrases, 0)):
            if words:
                last = [*self._tokens[max(first, len(self._tokens) - _LONGEST) :], *draft]
                done = (word[-1] for word in words if _completes(word, last))
                bias = {**bias, **dict.fromkeys(done, BANNED)}
        if output_index == 0 and self._first_bias:
            bias = {**bias, **self._first_bias}
        if self._suppress_end or output_index < self._min_tokens:
            bias = {**bias, **self._end_bias}
        return bias


_LONGEST = 64
"""Tokens of a banned sequence that are compared."""


def _completes(word: Sequence[int], output: Sequence[int]) -> bool:
    """Whether one more token would complete the banned sequence."""
    prefix = word[-_LONGEST:-1]
    return [*output[-len(prefix) :]] == [*prefix]
