"""Words of tokens, and the rows at which tokens begin, against transformers' own functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from transformers.models.whisper.generation_whisper import _dynamic_time_warping, _median_filter
from transformers.models.whisper.tokenization_whisper import _combine_tokens_into_words

from mlcc.multimodal.audio.words import words_of
from mlcc.util import executor_library

PIECES = [
    *(text.encode() for text in (" the", " it", "ing", "s", ",", ".", ' "', '"', " (", ")", " ")),
    *(text.encode() for text in (" don", "'t", " -", "\u4e2d", "\u6587\u3002", "?", "\u00e9")),
    *(b"\xe4", b"\xb8", b"\xad", b" \xc3", b"\xa9", b"\xff"),
]
"""Bytes of each token, of which the last ones are halves of characters."""


class Tokenizer:
    """As much of one as transformers asks for."""

    eos_token_id = len(PIECES)

    def decode(self, tokens: Sequence[int], **more: Any) -> str:
        return b"".join(PIECES[token] for token in tokens).decode("utf-8", "replace")


@pytest.mark.parametrize(("code", "name"), [("en", "english"), ("zh", "chinese")])
def test_words_equal_transformers(code: str, name: str) -> None:
    rng, tokenizer = np.random.default_rng(0), Tokenizer()
    for _ in range(400):
        tokens = rng.integers(0, len(PIECES), rng.integers(1, 14)).tolist()
        texts, _, places = _combine_tokens_into_words(tokenizer, tokens, name)
        found = words_of(tokens, tokenizer.decode, code)
        assert [word.text for word in found] == texts
        assert [(word.first, word.last) for word in found] == [(at[0], at[-1]) for at in places]


@pytest.mark.parametrize(
    ("tokens", "heads", "rows", "used"),
    [(1, 2, 9, 9), (5, 1, 7, 3), (4, 3, 30, 29), (12, 6, 100, 80), (40, 2, 20, 20)],
)
def test_rows_equal_transformers(tokens: int, heads: int, rows: int, used: int) -> None:
    rng = np.random.default_rng(tokens)
    given = rng.random((tokens, heads, rows), np.float32) ** 6
    begins = executor_library.load().token_rows(given.tobytes(), tokens, heads, rows, used)
    weights = torch.tensor(given)[..., :used].permute(1, 0, 2)
    spread, mean = torch.std_mean(weights, dim=-2, keepdim=True, unbiased=False)
    matrix = _median_filter(((weights - mean) / spread)[None], 7)[0].mean(0)
    texts, times = _dynamic_time_warping(-matrix.double().numpy())
    assert list(begins) == times[np.diff(texts, prepend=-1) > 0].tolist()


def test_too_few_weights_are_refused() -> None:
    library = executor_library.load()
    with pytest.raises(library.Failed, match="too few weights"):
        library.token_rows(bytes(4 * 23), 2, 3, 4, 4)
