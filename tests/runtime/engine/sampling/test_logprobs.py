"""Log-probabilities of exactly the tokens of an answer, its end token too, in one piece or many."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlcc.engine import Capacity, Request, SamplingParams
from mlcc.engine.batch.tables import CacheGroup
from mlcc.engine.text.detokenizer import OutputText
from mlcc.engine.text.logprobs import PromptLogprobs, TokenLogprob
from mlcc.engine.text.tokenizer import TokenTexts, bytes_of
from mlcc.errors import InvalidRequestError
from tests.runtime.engine.helpers import naive
from tests.runtime.engine.helpers.drive import toy_driver
from tests.runtime.engine.helpers.tokenizers import (
    EURO,
    PIECES,
    SMILE,
    ByteTokenizer,
    SpaceTokenizer,
)
from tests.runtime.engine.test_against_naive import STOPS, Arrival, play

VOCAB = ByteTokenizer.vocab_size
CAPACITY = Capacity.of(
    [CacheGroup("paged", 4)], [9], vocab_size=VOCAB, context=32, max_batch=3, max_step_tokens=6
)
WHOLE = [t for t in range(VOCAB) if "\ufffd" not in PIECES[t].decode(errors="replace")]
"""Tokens that are whole characters or empty."""
ONLY_WHOLE = tuple((t, -100.0) for t in range(VOCAB) if t not in WHOLE)


LETTERS = {byte: x for x in map(chr, range(33, 400)) for byte in bytes_of(x) or b""}
"""The letter of each byte in GPT-2's vocabularies."""


class PieceTokenizer(ByteTokenizer):
    """A tokenizer with the pieces of a byte-level vocabulary."""

    def piece(self, token: int) -> str | None:
        return "".join(LETTERS[byte] for byte in PIECES[token])


requests = st.builds(
    SamplingParams,
    temperature=st.sampled_from([0.0, 1.0]),
    seed=st.integers(0, 99),
    max_tokens=st.integers(0, 16),
    stop=st.lists(st.sampled_from(STOPS), max_size=2, unique=True).map(tuple),
    logprobs=st.none() | st.integers(0, 20),
    logit_bias=st.just(ONLY_WHOLE),
)
echoing = requests.filter(lambda sampling: sampling.logprobs is not None).map(
    lambda sampling: replace(sampling, prompt_logprobs=True)
)


@st.composite
def arrivals(draw: st.DrawFn) -> list[Arrival]:
    prompts = st.lists(st.sampled_from(WHOLE), min_size=1, max_size=8)
    return [
        Arrival(
            Request(f"r{i}", draw(prompts), draw(requests | echoing)), draw(st.integers(0, 9)), None
        )
        for i in range(draw(st.integers(1, 4)))
    ]


@settings(max_examples=150, deadline=None, derandomize=True, database=None)
@given(arrivals(), st.integers(1, 3), st.sets(st.sampled_from(WHOLE), max_size=1))
def test_reported_tokens_make_up_the_answer(
    coming: list[Arrival], depth: int, eos: set[int]
) -> None:
    """For any stop strings, depth and preemptions: the twin's tokens, as far as their text is in
    the answer, its end token, and the most likely at each position."""
    driver = toy_driver(CAPACITY, eos, ByteTokenizer(), depth, seed=7)
    added = play(driver, sorted(coming, key=lambda a: a.at))
    for number, arrival in enumerate(added):
        request, got = arrival.request, driver.got[arrival.request.id]
        count = request.sampling.logprobs
        want = naive.answer(request, number, CAPACITY, eos, ByteTokenizer(), base=7)
        assert (got.text, got.tokens) == (want.text, want.tokens)
        texts = [PIECES[t].decode() for t in want.tokens]
        ends = [len("".join(texts[: i + 1])) for i in range(len(texts))]
        reported = [i for i, end in enumerate(ends) if end <= len(want.text)]
        assert len(got.prompt) == (len(request.prompt) if request.sampling.prompt_logprobs else 0)
        if count is None:
            assert not got.token_logprobs
            continue
        for i, token in list(enumerate(got.prompt))[1:]:
            best = naive.likeliest(CAPACITY, request.prompt[:i], (), naive.Adjustment())
            assert token.chosen[0] == request.prompt[i]
            assert token.chosen.logprob == dict(best)[token.chosen[0]]
            assert [(c.token, c.logprob) for c in token.top] == best[:count]
        tokens = [*got.token_logprobs]
        if want.end is not None:
            end = tokens.pop().chosen
            assert (end.token, end.logprob) == want.end
        assert [t.chosen.token for t in tokens] == [want.tokens[i] for i in reported]
        for i, token in zip(reported, tokens, strict=True):
            text = texts[i]
            assert token.chosen[1:] == (text, text.encode(), want.logprobs[i], not text)
            assert token.offset == ends[i] - len(texts[i])
            assert [c.token for c in token.top] == likeliest(
                request, number, want.tokens[:i], count
            )


def likeliest(request: Request, number: int, output: list[int], count: int) -> list[int]:
    """The twin's, in the place behind these tokens."""
    seed = request.sampling.seed
    assert seed is not None
    prompt = list(request.prompt)
    params = naive.row_params(request, seed, len(prompt) + len(output))
    adjustment = naive.adjustment_of(request, output, ())
    best = naive.likeliest(CAPACITY, prompt, output, adjustment, params)[:count]
    return [token for token, _ in best]


def answered(tokens: list[int], *stop: str) -> tuple[str, list[TokenLogprob]]:
    """The text of an answer of these tokens, and their log-probabilities, as they come out."""
    tokenizer = PieceTokenizer()
    answer = OutputText(tokenizer, [], stop, TokenTexts(tokenizer, VOCAB))
    text, reported = "", []
    for token in tokens:
        more = answer.push(token)
        found = answer.take_logprobs(more, token, -1.0, [(token, -1.0)])
        assert more or all(each.chosen.control for each in found)
        text, reported = text + more, [*reported, *found]
    more = answer.flush()
    return text + more, [*reported, *answer.take_logprobs(more)]


def test_parts_of_a_character_are_reported_with_it() -> None:
    euro, smile = [*range(2, 5)], [*range(5, 9)]
    text, reported = answered([17, *euro, 18, *smile])
    assert text == "a€b😀"
    made = [t.chosen.bytes for t in reported]
    assert made == [b"a", *(bytes([b]) for b in EURO), b"b", *(bytes([b]) for b in SMILE)]
    assert [t.offset for t in reported] == [0, 1, 1, 1, 2, 3, 3, 3, 3]
    assert {t.chosen.text for t in reported[1:4]} == {"\ufffd"}
    assert [t.top[0] for t in reported] == [t.chosen for t in reported]
    text, reported = answered([17, *euro[:2]])  # it was cut off within a character
    assert text == "a\ufffd" and [t.chosen.bytes for t in reported] == [b"a", b"\xe2", b"\x82"]


def test_tokens_cut_off_by_a_stop_string_are_not_reported() -> None:
    text, reported = answered([17, 18, 21], "baa")
    assert text == "a" and [t.chosen.text for t in reported] == ["a"]
    text, reported = answered([17, 19, 18], "bb")  # "ab" reaches into it
    assert text == "aa" and [t.chosen.text for t in reported] == ["a"]
    text, reported = answered([17, 18, 18], "bbb")  # it might have come, and did not
    assert text == "abb" and [t.chosen.text for t in reported] == ["a", "b", "b"]


def test_a_tokens_text_is_what_it_adds_and_its_bytes_are_those_of_its_piece() -> None:
    words = TokenTexts(SpaceTokenizer(), SpaceTokenizer.vocab_size)
    assert [words.of(t).text for t in range(4)] == ["", " ", " a", "b"]
    blind, telling = TokenTexts(ByteTokenizer(), VOCAB), TokenTexts(PieceTokenizer(), VOCAB)
    for token in range(VOCAB):
        assert telling.of(token).bytes == PIECES[token]
        assert blind.of(token).bytes == (PIECES[token] if token in WHOLE else None)
        assert blind.of(token).text == PIECES[token].decode(errors="replace")
    assert bytes_of("<0xE2>") == b"\xe2" and bytes_of("Ġ") == b" "
    assert bytes_of("▁the") is None and bytes_of("") is None


def test_without_a_tokenizer_they_are_refused() -> None:
    with pytest.raises(InvalidRequestError, match="logprobs needs text"):
        toy_driver(CAPACITY).add(Request("a", [1], SamplingParams(logprobs=0)))
    with pytest.raises(InvalidRequestError, match=r"0 \.\. 20"):
        SamplingParams(logprobs=21)


def test_a_prompt_takes_the_rows_that_are_left() -> None:
    """Three rows per step: three of its tokens if alone, two beside a decoding sequence."""
    driver = toy_driver(CAPACITY, tokenizer=ByteTokenizer())
    one = SamplingParams(max_tokens=1, ignore_eos=True, logprobs=2, prompt_logprobs=True)
    driver.add(Request("first", WHOLE[:7], one))
    for _ in range(2):
        driver.step()
    assert driver.engine.stats().computed_tokens == 6
    driver.add(Request("other", WHOLE[:1], SamplingParams(max_tokens=9, ignore_eos=True)))
    driver.run()
    driver.add(Request("again", WHOLE[:7], one))
    got = driver.run()
    assert got["first"].prompt == got["again"].prompt
    assert got["again"].finished is not None and got["again"].finished.cached_tokens == 0
    assert got["first"].prompt[1].top and not got["first"].prompt[0].top


def test_control_tokens_of_a_prompt_are_reported_too() -> None:
    class Writing(ByteTokenizer):
        def piece(self, token: int) -> str:
            return f"<{token}>"

    reported = PromptLogprobs(TokenTexts(Writing(), VOCAB), [0, 17]).all()
    assert [(t.chosen.text, t.chosen.bytes, t.offset) for t in reported] == [
        ("<0>", b"<0>", 0),
        ("a", b"a", 3),
    ]


def test_control_tokens_of_an_output_are_reported_where_they_are() -> None:
    euro = [*range(2, 5)]
    text, reported = answered([0, 17, 0, *euro[:2], 0, euro[2], 18, 0])
    assert text == "a€b"
    assert [(t.chosen.token, t.offset) for t in reported] == [
        (0, 0), (17, 0), (0, 1), (2, 1), (3, 1), (0, 1), (4, 1), (18, 2), (0, 3),
    ]  # fmt: skip
    assert [t.chosen.control for t in reported] == [not t.chosen.token for t in reported]


def test_no_token_of_an_answer_of_none() -> None:
    """The prompt is computed, and reported where that is requested."""
    driver = toy_driver(CAPACITY, tokenizer=ByteTokenizer())
    none = SamplingParams(max_tokens=0, logprobs=1, prompt_logprobs=True)
    driver.add(Request("reported", WHOLE[:7], none))
    driver.add(Request("plain", WHOLE[:7], SamplingParams(max_tokens=0)))
    got = driver.run()
    assert len(got["reported"].prompt) == 7
    for one in got.values():
        assert one.finished is not None
        assert (one.tokens, one.finished.reason, one.finished.completion_tokens) == (
            [],
            "length",
            0,
        )


def test_prompt_logprobs_need_logprobs() -> None:
    with pytest.raises(InvalidRequestError, match="False without logprobs"):
        SamplingParams(prompt_logprobs=True)
