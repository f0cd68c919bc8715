"""Tensors of the Open Inference Protocol: any bytes and any JSON are texts or are refused."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlcc.api.kserve.fields import INFER
from mlcc.api.kserve.tensors import Output, Spec, response, texts_of, wanted
from mlcc.errors import InvalidRequestError, MlccError

TEXT = [Spec("text", "BYTES", (-1,))]
PAIR = [Spec("query", "BYTES", (-1,)), Spec("document", "BYTES", (-1,))]
TEXTS = st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=9), max_size=4)


def packed(texts: list[str]) -> bytes:
    return b"".join(struct.pack("<I", len(one)) + one for one in map(str.encode, texts))


def described(name: str, texts: list[str], binary: bool) -> dict[str, Any]:
    entry: dict[str, Any] = {"name": name, "shape": [len(texts)], "datatype": "BYTES"}
    if binary:
        return {**entry, "parameters": {"binary_data_size": len(packed(texts))}}
    return {**entry, "data": texts}


@given(TEXTS, TEXTS, st.booleans(), st.booleans(), st.booleans())
@settings(max_examples=60, deadline=None)
def test_texts_come_back(
    one: list[str], other: list[str], first: bool, second: bool, swapped: bool
) -> None:
    given_ = [("query", one, first), ("document", other, second)][:: -1 if swapped else 1]
    fields = INFER.check({"inputs": [described(*each) for each in given_]}, "")
    rest = b"".join(packed(texts) for _, texts, binary in given_ if binary)
    assert texts_of(fields["inputs"], PAIR, rest) == [one, other]


@given(st.binary(max_size=40), st.integers(0, 50), st.integers(0, 5))
@settings(max_examples=200, deadline=None)
def test_any_bytes_are_texts_or_are_refused(rest: bytes, size: int, count: int) -> None:
    tensor = {"name": "text", "shape": [count], "parameters": {"binary_data_size": size}}
    try:
        (texts,) = texts_of([tensor], TEXT, rest)
    except InvalidRequestError:
        return
    assert packed(texts) == rest and len(texts) == count


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)
FIELDS = st.sampled_from(["name", "shape", "datatype", "parameters", "data", "binary_data_size"])


@given(st.dictionaries(FIELDS, JSON), st.binary(max_size=8))
@settings(max_examples=200, deadline=None)
def test_any_json_is_taken_or_refused(change: dict[str, Any], rest: bytes) -> None:
    body = {"inputs": [{**described("text", ["a"], False), **change}]}
    try:
        texts_of(INFER.check(body, "")["inputs"], TEXT, rest)
    except MlccError as error:
        assert error.message


@pytest.mark.parametrize("binary", [True, False])
def test_outputs(binary: bool) -> None:
    specs = [Spec("label", "BYTES", (-1,)), Spec("score", "FP32", (-1, 2))]
    shown = wanted([{"name": "label"}, {"name": "score"}], specs, binary)
    made = [Output("label", (2,), None, ["é", ""]), Output("score", (1, 2), [0.5, -1.0])]
    found, raw = response({"model_name": "m"}, made, shown)
    label, score = found["outputs"]
    if not binary:
        assert (label["data"], score["data"], raw) == (["é", ""], [0.5, -1.0], b"")
        return
    assert raw == packed(["é", ""]) + struct.pack("<2f", 0.5, -1.0)
    assert label["parameters"] == {"binary_data_size": 10}
    assert score["parameters"] == {"binary_data_size": 8} and "data" not in score
