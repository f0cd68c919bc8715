"""JSON by pieces is the same as at once, and no piece is long."""

from __future__ import annotations

import json
from array import array
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlcc.service.http import json_pieces
from mlcc.service.http.json_pieces import FLAT, NESTED, json_text, parse_lists, to_json_by_pieces
from mlcc.service.http.types import PIECE, to_json

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.floats(allow_nan=False, width=16),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=15,
).filter(lambda value: "Infinity" not in json.dumps(value))


@given(VALUES, st.integers(1, 3))
def test_it_writes_what_one_call_writes(value: Any, size: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_pieces, "FLAT", size)
        patch.setattr(json_pieces, "NESTED", size)
        assert to_json_by_pieces(value) == to_json(value)


@given(st.lists(VALUES, max_size=4))
def test_an_iterator_is_written_as_its_list(value: list[Any]) -> None:
    assert to_json_by_pieces({"rows": iter(value)}) == to_json({"rows": value})


@given(st.lists(st.integers(0, 9)), st.integers(1, 3))
def test_an_array_is_written_as_its_list(value: list[int], size: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_pieces, "FLAT", size)
        assert to_json_by_pieces({"ids": array("q", value)}) == to_json({"ids": value})


def test_pieces_of_a_long_text_are_neither_long_nor_many() -> None:
    """Each is sent by itself."""
    row = {"id": 7, "piece": "abc"}
    text = json_text({"tokens": (row for _ in range(50_000)), "ids": [[7]] * 50_000})
    sizes = [len(piece) for piece in text.pieces]
    assert min(sizes[:-1]) >= PIECE and max(sizes) < PIECE + NESTED * len(to_json(row)) + 2
    assert json.loads(str(text)) == {"tokens": [row] * 50_000, "ids": [[7]] * 50_000}


@given(st.dictionaries(st.text(), st.lists(VALUES, max_size=4), max_size=3))
def test_it_parses_what_was_written(value: dict[str, list[Any]]) -> None:
    assert parse_lists(to_json(value)) == value


@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"a"', '{"a":', '{"a":[', '{"a":[1', '{"a":[1]', '{"a":[1]}x', "{}{}"]
)
def test_another_text_is_an_error(text: str) -> None:
    with pytest.raises(ValueError):
        parse_lists(text)


def test_no_call_writes_or_parses_many_items(monkeypatch: pytest.MonkeyPatch) -> None:
    lengths: list[int] = []

    def measured(value: Any) -> str:
        lengths.append(len(value) if isinstance(value, list) else 1)
        return to_json(value)

    monkeypatch.setattr(json_pieces, "to_json", measured)
    to_json_by_pieces({"tokens": [7] * 100_000})
    assert len(lengths) > 20 and max(lengths) == FLAT
    lengths.clear()
    to_json_by_pieces({"rows": [[0.5] * 10] * 200})
    assert len(lengths) > 10 and max(lengths) == NESTED


def test_no_call_writes_a_long_value_inside_a_short_list(monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer's log-probabilities are 40,000 numbers in a list of one choice."""
    sizes: list[int] = []

    def measured(value: Any) -> str:
        text = to_json(value)
        sizes.append(len(text))
        return text

    monkeypatch.setattr(json_pieces, "to_json", measured)
    top = {f"token{number}": -0.5 for number in range(20)}
    choice = {
        "index": 0,
        "logprobs": {"tokens": ["a"] * 2000, "top_logprobs": [None] + [top] * 1999},
    }
    value = {"choices": [choice], "rows": [[0.5] * 1000] * 50}
    assert json.loads(to_json_by_pieces(value)) == value
    assert max(sizes) <= max(NESTED * len(to_json(top)), FLAT * len(to_json("a,"))) + 2
