"""Tokens that a checkpoint's generation_config.json forbids, at the bounds of the vocabulary."""

from __future__ import annotations

from typing import Any

import pytest

from mlcc.artifact.generation_config import MOST_TOKENS, forbidden_by, tokens_never_sampled

VOCABULARY, END = 16, 2


def never(**config: Any) -> dict[str, Any]:
    return tokens_never_sampled(config, VOCABULARY, {END})


@pytest.mark.parametrize("name", ["suppress_tokens", "begin_suppress_tokens"])
def test_tokens(name: str) -> None:
    assert never(**{name: [0, 15, 15, 16, 99]}) == {name: (0, 15)}
    assert never(**{name: [16]}) == never(**{name: "x"}) == never() == {}
    assert forbidden_by(name, [0] * MOST_TOKENS) == (0,)
    for value in ([0] * (MOST_TOKENS + 1), [-1], [1 << 31], [True], [1.5], 3):
        assert forbidden_by(name, value) is None
    assert forbidden_by(name, [(1 << 31) - 1]) == ((1 << 31) - 1,)


def test_words() -> None:
    words = [[0], [3, 15], [3, 16], [16, 3], [END], [END, 3]]
    assert never(bad_words_ids=words) == {"bad_words_ids": ((0,), (3, 15), (END, 3))}
    assert never(bad_words_ids=[[16]]) == {}
    for value in ([[]], [3], [[-1]], [[0] * (MOST_TOKENS + 1)]):
        assert forbidden_by("bad_words_ids", value) is None


def test_repeated_words() -> None:
    assert never(no_repeat_ngram_size=3) == {"no_repeat_ngram_size": 3}
    assert never(no_repeat_ngram_size=0) == never(no_repeat_ngram_size=-1) == {}
