"""Detokenization, stop strings and random numbers, each against its obvious definition."""

from __future__ import annotations

from array import array
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlcc.engine.batch.random import derive_seed, mix64, stream_of, uniform
from mlcc.engine.text import detokenizer as module
from mlcc.engine.text.detokenizer import Detokenizer, Piece, Window
from mlcc.engine.text.stop_checker import StopChecker
from mlcc.engine.text.tokenizer import Tokenizer
from tests.runtime.engine.helpers.naive import find_stop, whole_text
from tests.runtime.engine.helpers.tokenizers import (
    ByteFallbackTokenizer,
    ByteTokenizer,
    CountingTokenizer,
    SpaceTokenizer,
)

fixed = settings(max_examples=300, deadline=None, derandomize=True, database=None)


def pieces(tokenizer: Tokenizer, prompt: list[int], ids: list[int]) -> list[str]:
    detokenizer = Detokenizer(tokenizer, prompt)
    return [*(detokenizer.push(i) for i in ids), detokenizer.flush()]


byte_ids = st.lists(st.integers(0, ByteTokenizer.vocab_size - 1), max_size=40)


@fixed
@given(byte_ids, byte_ids)
def test_pieces_of_bytes_are_the_whole(prompt: list[int], ids: list[int]) -> None:
    assert "".join(pieces(ByteTokenizer(), prompt, ids)) == whole_text(ByteTokenizer(), prompt, ids)


words = st.lists(st.integers(1, SpaceTokenizer.vocab_size - 1), max_size=20)


@fixed
@given(words, words)
def test_pieces_of_words_are_the_whole(prompt: list[int], ids: list[int]) -> None:
    tokenizer = SpaceTokenizer()
    assert "".join(pieces(tokenizer, prompt, ids)) == whole_text(tokenizer, prompt, ids)


@fixed
@given(st.text(st.sampled_from("aé€😀 z"), max_size=12), st.integers(0, 3))
def test_characters_come_whole(text: str, cut: int) -> None:
    tokenizer = ByteFallbackTokenizer()
    ids = tokenizer.encode(text)
    got = pieces(tokenizer, ids[:cut], ids)
    if cut == 0:
        assert "".join(got) == text
        assert not any("\ufffd" in piece for piece in got)
    until = pieces(tokenizer, [], ids[:-1]) if ids else []
    assert "\ufffd" not in "".join(until[:-1])


def test_a_character_in_four_tokens_and_one_begun_in_the_prompt() -> None:
    assert pieces(ByteTokenizer(), [17], [5, 6, 7, 8, 17]) == ["", "", "", "😀", "a", ""]
    assert pieces(ByteTokenizer(), [17, 2], [3, 4]) == ["", "€", ""]
    assert pieces(ByteTokenizer(), [17, 2], []) == [""]
    assert pieces(ByteTokenizer(), [17, 2], [17]) == ["a", ""], "the broken one is the prompt's"


def test_special_tokens_amid_the_bytes_of_a_character() -> None:
    ids = [14, 14, 14, 14, 14, 14, 5, 0, 6, 0, 0, 7, 0, 8]
    assert "".join(pieces(ByteTokenizer(), [17], ids)) == "\ufffd" * 6 + "😀"


def test_broken_bytes_do_not_pile_up() -> None:
    tokenizer = CountingTokenizer()
    detokenizer = Detokenizer(tokenizer)
    out = "".join(detokenizer.push(14) for _ in range(1000))
    assert 980 < len(out) <= 1000 and set(out) == {"\ufffd"}
    assert tokenizer.decoded < 1000 * 60


@pytest.mark.parametrize("token", [0, 18, 8])
def test_work_per_token_does_not_grow(token: int) -> None:
    def work(count: int) -> int:
        tokenizer = CountingTokenizer()
        detokenizer = Detokenizer(tokenizer, [18] * 50)
        for _ in range(count):
            detokenizer.push(token)
        return tokenizer.decoded

    assert work(2000) < 2.2 * work(1000)
    assert work(2000) < 2000 * 60


@fixed
@given(st.lists(st.lists(st.integers(0, 20), max_size=12), min_size=2, max_size=4))
def test_what_answers_learn_of_each_other_changes_no_piece(answers: list[list[int]]) -> None:
    known: dict[Window, Piece] = {}
    for ids in answers:
        alone, together = Detokenizer(ByteTokenizer()), Detokenizer(ByteTokenizer(), known=known)
        assert [*map(alone.push, ids)] == [*map(together.push, ids)]
        assert alone.flush() == together.flush()


def test_what_is_known_of_tokens_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_KNOWN", 3)
    known: dict[Window, Piece] = {}
    detokenizer = Detokenizer(ByteTokenizer(), known=known)
    for token in (17, 18, 19, 20) * 3:
        detokenizer.push(token)
        assert len(known) <= 3


stop_text = st.text(st.sampled_from("ab."), max_size=30)
stop_strings = st.lists(st.text(st.sampled_from("ab."), min_size=1, max_size=5), max_size=3)


@fixed
@given(stop_text, stop_strings, st.lists(st.integers(0, 30), max_size=6))
def test_stops_do_not_depend_on_the_pieces(text: str, stops: list[str], cuts: list[int]) -> None:
    edges = [0, *sorted(cuts), len(text)]
    checker = StopChecker(stops)
    parts = [text[a:b] for a, b in pairwise(edges)]
    out = "".join(checker.push(part) for part in parts) + checker.flush()
    want = find_stop(text, stops)
    assert (out, checker.matched) == (want or (text, None))


def test_text_is_held_back_no_longer_than_needed() -> None:
    checker = StopChecker(["\n\nUser:"])
    assert [checker.push(t) for t in ("Hi\n", "\nUs", "e", "less", "\n\nUser", ":x", "y")] == [
        "Hi",
        "",
        "",
        "\n\nUseless",
        "",
        "",
        "",
    ]
    assert checker.matched == "\n\nUser:" and checker.flush() == ""


def test_uniform_is_the_same_everywhere_forever() -> None:
    # Published seeds must keep their texts: these numbers may never change.
    draws = [uniform(stream_of(seed), i) for seed, i in ((0, 0), (0, 1), (1, 0), (-1, 5))]
    assert draws == [
        0.6524484753608704,
        0.7012121081352234,
        0.3681895136833191,
        0.15403342247009277,
    ]
    assert derive_seed(0, 0) == 12035550249420947055
    assert mix64(0x9E3779B97F4A7C15) == 0xE220A8397B1DCDAF, "SplitMix64's first number"


@fixed
@given(st.integers(-(2**70), 2**70), st.integers(0, 2**31))
def test_uniform_is_a_float32_below_one(seed: int, index: int) -> None:
    value = uniform(stream_of(seed), index)
    assert 0 <= value < 1 and array("f", [value])[0] == value


def test_uniform_looks_uniform() -> None:
    for draws in (
        [uniform(stream_of(3), i) for i in range(4096)],
        [uniform(stream_of(i), 3) for i in range(4096)],
        [uniform(stream_of(derive_seed(0, i)), 100) for i in range(4096)],
    ):
        buckets = [0] * 16
        for u in draws:
            buckets[int(u * 16)] += 1
        chi2 = sum((n - 256) ** 2 / 256 for n in buckets)
        assert chi2 < 45, "15 degrees of freedom: 1 in 10,000"
        pairs = sum((a - 0.5) * (b - 0.5) for a, b in pairwise(draws))
        assert abs(pairs / 4095 * 12) < 0.07
