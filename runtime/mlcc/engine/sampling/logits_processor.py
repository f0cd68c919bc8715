"""What one request does to its rows of logits: penalties, biases, tokens that may not come.

It keeps what was said; `adjustments.py` writes it, the device does it. A request that wishes for
none of this has no adjuster, and its steps no second upload.
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

BANNED = -1e20
"""Added to the logit of a token that must not come: no probability is left in float32, and dividing
by the smallest temperature does not overflow, as infinity may where a device assumes that there is
none (WGSL)."""


class LogitsProcessor:
    """Of one request. `tokens` are its known ones, to which the engine appends what is said; `ends`
    those that end its answer, under a grammar the model's own in any case; `mask_words` what the
    mask of a grammar takes; `breaks` says whether a token interrupts what DRY calls a repetition.
    """

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
        self._counts = self._penalties != Penalties()
        self._bias = dict(sampling.logit_bias)
        self._bias.update((word[0], BANNED) for word in sampling.bad_words if len(word) == 1)
        self._phrases = [word for word in sampling.bad_words if len(word) > 1]
        self._min_tokens = sampling.min_tokens
        self._goes_on = grammar is not None and sampling.ignore_eos
        self._grammar = grammar
        self._mask_words = mask_words if grammar else 0
        self._ends = dict.fromkeys(ends, BANNED)
        self._tokens, self._prompt = tokens, len(tokens)
        self._window = sampling.repeat_last_n if self._counts else -1
        self._history: dict[int, int] = {}
        if sampling.repetition_penalty != 1:
            self._history = dict.fromkeys(tokens, 0)
        self._dry = Dry(sampling.dry, tokens, breaks) if sampling.dry.multiplier else None
        self._masks: Sequence[array[int] | None] = ()
        """Behind each of the guesses that were foreseen."""

    @property
    def most_words(self) -> int:
        """Of its lists in the next step, at most."""
        history = len(self._history if self._window < 0 else self._recent())
        biases = len(self._bias) + len(self._ends) + len(self._phrases)
        if self._dry is not None:
            biases += len(self._dry.penalties())
        return len(HISTORY) * history + len(BIASES) * biases + self._mask_words

    @property
    def most_unknown(self) -> int:
        """Tokens of the answer that may be in flight when its logits are changed: the device adds
        one to the history itself, and all else is made of all."""
        whole = self._grammar or self._dry or self._phrases or self._window >= 0
        return 0 if whole else 1

    def push(self, token: int) -> None:
        """A token was said."""
        if self._counts and self._window < 0:
            self._history[token] = self._history.get(token, 0) + 1
        if self._dry is not None:
            self._dry.push(token)

    def acts(self, said: int) -> bool:
        """Whether token number `said` of the answer is sampled from other logits."""
        always = self._counts or bool(self._bias) or self.most_unknown == 0
        return always or said < self._min_tokens

    @property
    def supports_drafts(self) -> bool:
        """Whether logits behind guesses can be adjusted: DRY's penalties are of what was said."""
        return self._dry is None

    def lookahead(self, draft: Sequence[int]) -> int:
        """How many of these guesses may be computed in the next step: as many as the grammar lets
        follow."""
        if self._grammar is None:
            return len(draft)
        self._masks = self._grammar.lookahead(draft)
        return len(self._masks)

    def write(
        self,
        writer: AdjustmentWriter,
        row: int,
        said: int,
        in_flight: int,
        draft: Sequence[int] = (),
    ) -> None:
        """Adjust a row, from which token number `said` of the answer is sampled. in_flight: the row
        of the step before that samples the token in front of it, which is not known; -1 = it is.
        draft: guesses that were foreseen, and are taken for said before it."""
        writer.row(
            row,
            self._penalties,
            history=self._said(draft),
            in_flight=in_flight if self._counts else -1,
            bias=self._biases(said, draft),
            mask=0 if (mask := self._mask(draft)) is None else writer.mask(mask),
        )

    def _mask(self, draft: Sequence[int]) -> array[int] | None:
        if self._grammar is None:
            return None
        return self._masks[len(draft) - 1] if draft else self._grammar.allowed()

    def _said(self, draft: Sequence[int]) -> Mapping[int, int]:
        """The history, with some guesses behind it."""
        if self._window >= 0:
            return self._recent(draft)
        if not draft or not self._counts:
            return self._history
        found = dict(self._history)
        for token in draft:
            found[token] = found.get(token, 0) + 1
        return found

    def _recent(self, draft: Sequence[int] = ()) -> dict[int, int]:
        """What the last tokens were: how often each was said, 0 = it is of the prompt."""
        count, found = len(self._tokens) + len(draft), dict[int, int]()
        first = max(0, count - self._window)
        said = chain(islice(self._tokens, first, None), draft[max(0, first - len(self._tokens)) :])
        for at, token in enumerate(said, first):
            found[token] = found.get(token, 0) + (at >= self._prompt)
        return found

    def _biases(self, said: int, draft: Sequence[int] = ()) -> Mapping[int, float]:
        """What is added to logits now."""
        bias = self._bias
        if self._dry is not None:
            bias = dict(bias)
            for token, lost in self._dry.penalties().items():
                bias[token] = bias.get(token, 0.0) - lost
        if self._phrases:
            answer = [*self._tokens[max(self._prompt, len(self._tokens) - _LONGEST) :], *draft]
            bias = {**bias, **{word[-1]: BANNED for word in self._phrases if _near(word, answer)}}
        if self._goes_on or said < self._min_tokens:
            bias = {**bias, **self._ends}
        return bias


_LONGEST = 64
"""Tokens of a phrase that must not be said, which are compared."""


def _near(word: Sequence[int], answer: Sequence[int]) -> bool:
    """Whether one more token would complete it."""
    begun = word[-_LONGEST:-1]
    return [*answer[-len(begun) :]] == [*begun]
