"""`truncate_prompt_tokens` of embeddings at its bounds, and what a text is cut to."""

from __future__ import annotations

import asyncio
from array import array
from types import SimpleNamespace

import pytest

from mlcc.engine.encoder_engine import longest_text
from mlcc.errors import InvalidRequestError
from mlcc.service.embeddings import Encoding, cut_text
from tests.helpers.toy.toy_model import CAPACITY

LONGEST = longest_text(CAPACITY)


def encoding(cut: int | None) -> Encoding:
    made = object.__new__(Encoding)
    made._core = SimpleNamespace(engine=SimpleNamespace(capacity=CAPACITY))  # type: ignore[assignment]
    made._cut, made._field = cut, "documents"
    return made


def most(cut: int | None) -> int:
    return encoding(cut).most


def test_how_many_tokens_a_text_may_have() -> None:
    asked = (None, -1, 1, LONGEST)
    assert [most(cut) for cut in asked] == [LONGEST, LONGEST, 1, LONGEST]
    for cut in (0, -2, LONGEST + 1):
        with pytest.raises(InvalidRequestError, match=f"{cut}, and this model takes 1 .. "):
            most(cut)


def test_whole_texts_have_a_bound() -> None:
    ids = array("i", [1]) * LONGEST
    assert encoding(None)._whole(ids) == ids
    with pytest.raises(InvalidRequestError) as caught:
        encoding(None)._whole(ids + array("i", [1]))
    assert caught.value.param == "documents"


def test_the_end_of_the_text_is_cut_and_what_the_model_adds_is_kept() -> None:
    ids = array("i", [101, 7, 8, 9, 102])
    cuts = {n: cut_text(ids, [7, 8, 9], n).tolist() for n in (5, 4, 2, 1)}
    assert cuts == {5: [101, 7, 8, 9, 102], 4: [101, 7, 8, 102], 2: [101, 102], 1: [101]}
    assert cut_text(ids, [5], 3).tolist() == [101, 7, 8], "the text is not found in it"


def test_a_pair_keeps_its_query_and_one_token_of_its_document_at_least() -> None:
    async def encoded(text: str, special: bool) -> array[int]:
        return array("i", [ord(letter) for letter in text])

    def pair(cut: int | None) -> list[int]:
        made = encoding(cut)
        made.encoder = SimpleNamespace(template="", pair=((1,), (2,), (3,)), segments=1)  # type: ignore[assignment]
        made._encoded = encoded  # type: ignore[method-assign, assignment]
        return asyncio.run(made._pair("ab", "cde")).tolist()

    whole = [1, 97, 98, 2, 99, 100, 101, 3]
    assert pair(None) == pair(8) == whole
    assert pair(6) == [1, 97, 98, 2, 99, 3]
    for cut in (5, 4):
        with pytest.raises(InvalidRequestError):
            pair(cut)
