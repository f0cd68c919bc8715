"""What one request does to its rows of logits: penalties, biases, tokens that may not come.

It keeps what was said; `adjustments.py` writes it, the device does it. A request that wishes for
none of this has no adjuster, and its steps no second upload.
"""

from __future__ import annotations

from collections.abc import Iterable

from mlcc.engine.adjust_tables import BIASES, HISTORY
from mlcc.engine.adjustments import AdjustmentWriter, Penalties
from mlcc.engine.grammar import Grammar
from mlcc.engine.request import SamplingParams

BANNED = -1e20
"""Added to the logit of a token that must not come: no probability is left in float32, and dividing
by the smallest temperature does not overflow, as infinity may where a device assumes that there is
none (WGSL)."""


class Adjuster:
    """Of one request. `ends` are the tokens that end its answer, under a grammar the model's own in
    any case; `mask_words` what the mask of a grammar takes."""

    def __init__(
        self,
        sampling: SamplingParams,
        prompt: Iterable[int],
        ends: frozenset[int],
        grammar: Grammar | None = None,
        mask_words: int = 0,
    ) -> None:
        self._penalties = Penalties(
            sampling.repetition_penalty, sampling.frequency_penalty, sampling.presence_penalty
        )
        self._counts = self._penalties != Penalties()
        self._bias = dict(sampling.logit_bias)
        self._min_tokens = sampling.min_tokens
        self._goes_on = grammar is not None and sampling.ignore_eos
        self._grammar = grammar
        self._mask_words = mask_words if grammar else 0
        self._without_end = {**self._bias, **dict.fromkeys(ends, BANNED)}
        self._history: dict[int, int] = {}
        if sampling.repetition_penalty != 1:
            self._history = dict.fromkeys(prompt, 0)

    @property
    def most_words(self) -> int:
        """Of its lists in the next step, at most."""
        lists = len(HISTORY) * len(self._history) + len(BIASES) * len(self._without_end)
        return lists + self._mask_words

    @property
    def most_unknown(self) -> int:
        """Tokens of the answer that may be in flight when its logits are changed: the device adds
        one to the history itself, and a mask is made of all."""
        return 1 if self._grammar is None else 0

    def push(self, token: int) -> None:
        """A token was said."""
        if self._counts:
            self._history[token] = self._history.get(token, 0) + 1

    def acts(self, said: int) -> bool:
        """Whether token number `said` of the answer is sampled from other logits."""
        always = self._counts or bool(self._bias) or self._grammar is not None
        return always or said < self._min_tokens

    def write(self, writer: AdjustmentWriter, row: int, said: int, in_flight: int) -> None:
        """Adjust a row, from which token number `said` of the answer is sampled. in_flight: the row
        of the step before that samples the token in front of it, which is not known; -1 = it is."""
        goes_on = self._goes_on or said < self._min_tokens
        writer.row(
            row,
            self._penalties,
            history=self._history,
            in_flight=in_flight if self._counts else -1,
            bias=self._without_end if goes_on else self._bias,
            mask=writer.mask(self._grammar.allowed()) if self._grammar else 0,
        )
