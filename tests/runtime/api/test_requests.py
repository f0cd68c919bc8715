"""Requests: honoured fields, neutral values that are accepted, and refused fields."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlcc.api.openai.requests import (
    default_sampling,
    parse_chat,
    parse_completion,
    parse_sampling,
    recommended,
    to_params,
)
from mlcc.api.schema.chat_fields import CHAT, COMPLETION
from mlcc.api.schema.schema import Either, Integer, Many, Number, Text, Use
from mlcc.api.schema.unknown_fields import header, unknown
from mlcc.artifact.generation_config import FORBIDS
from mlcc.engine.request import SamplingParams
from mlcc.errors import InvalidRequestError, MlccError, UnsupportedError

HI = [{"role": "user", "content": "hi"}]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)


def chat(**fields: Any) -> Any:
    return parse_chat({"messages": HI, **fields})


def test_everything_that_is_honoured_arrives() -> None:
    made = chat(
        model="m",
        temperature=0,
        top_p=0.5,
        top_k=-1,
        min_p=0.1,
        seed=-5,
        stop="x",
        max_completion_tokens=7,
        stream=True,
        stream_options={"include_usage": True},
        ignore_eos=True,
    )
    assert made.sampling == {
        "temperature": 0.0, "top_p": 0.5, "top_k": 0, "min_p": 0.1, "seed": -5, "stop": ("x",),
        "max_tokens": 7, "ignore_eos": True,
    }  # fmt: skip
    assert (made.delivery.model, made.delivery.stream) == ("m", True)
    assert made.delivery.include_usage


def test_messages_become_what_templates_read() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    made = parse_chat(
        {
            "messages": [
                {"role": "developer", "content": "rules"},
                {"role": "user", "content": parts, "name": "ann"},
                {"role": "assistant", "content": "x", "refusal": None, "tool_calls": None},
            ]
        }
    )
    assert made.messages == (
        {"role": "system", "content": "rules"},
        {"role": "user", "content": "ab", "name": "ann"},
        {"role": "assistant", "content": "x"},
    )


@pytest.mark.parametrize("table", [CHAT, COMPLETION])
def test_null_is_always_the_same_as_absent(table: Any) -> None:
    nulls = {field.name: None for field in table.fields if not field.required}
    required = {"messages": HI} if table is CHAT else {"prompt": "x"}
    assert table.check({**required, **nulls}, "") == table.check(required, "")


@pytest.mark.parametrize("table", [CHAT, COMPLETION])
def test_each_row_does_what_it_says(table: Any) -> None:
    required = {"messages": HI} if table is CHAT else {"prompt": "x"}
    for field in table.fields:
        if field.use is Use.NOT_BUILT:
            for neutral in field.neutral:
                table.check({**required, field.name: neutral}, "")
            with pytest.raises(UnsupportedError) as caught:
                table.check({**required, field.name: "surprising"}, "")
            assert caught.value.param == field.name and field.name in caught.value.message
        elif field.use is Use.METADATA:
            assert field.name not in table.check({**required, field.name: object()}, "")


def test_an_unknown_field_is_found_and_a_near_one_suggested() -> None:
    body = {
        "messages": [{"role": "user", "id": 1, "content": [{"type": "text", "text": "x", "n": 1}]}],
        "temprature": 1,
        "stream_options": {"zzz": None},
        "user": {"what": "metadata may hold"},
    }
    found = {error.param: error.message for error in unknown(CHAT, body)}
    paths = ["messages[0].content[0].n", "messages[0].id", "stream_options.zzz", "temprature"]
    assert sorted(filter(None, found)) == paths
    assert "did you mean 'temperature'" in found["temprature"]
    assert "leave it out" in found["stream_options.zzz"]
    assert unknown(CHAT, {"messages": 5, "stream_options": []}) == unknown(CHAT, 7) == []


def test_what_names_ignored_fields_is_one_line_and_short() -> None:
    body = {f"a{i},\r\nset-cookie: é\ud800" + "x" * 100: 1 for i in range(40)}
    (text,) = header(unknown(CHAT, body)).values()
    assert text.isascii() and text.isprintable() and len(text) < 3000
    assert text.count(", ") == 15 and text.startswith("a0\\x2c\\r\\nset-cookie: \\xe9")
    assert header([]) == {}
    # no server sends a header that ends with a space
    (text,) = header(unknown(CHAT, {"b ": 1, "": 2})).values()
    assert text == "'b ', ''"


def test_what_an_answer_is_held_to_may_have_no_unknown_field() -> None:
    with pytest.raises(InvalidRequestError, match="did you mean 'json_schema'"):
        chat(response_format={"type": "json_object", "json_shema": {}})


def test_two_wishes_for_the_length_are_none() -> None:
    assert chat(max_tokens=3, max_completion_tokens=3).sampling["max_tokens"] == 3
    with pytest.raises(InvalidRequestError, match="3 and 'max_completion_tokens' is 4"):
        chat(max_tokens=3, max_completion_tokens=4)


def test_half_a_surrogate_pair_is_no_text() -> None:
    with pytest.raises(InvalidRequestError, match="surrogate"):
        parse_completion({"prompt": "\ud800"})


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        ("a", ("a",)),
        (["a", "b"], ("a", "b")),
        ([1, 2], ([1, 2],)),
        ([[1], [2, 3]], ([1], [2, 3])),
    ],
)
def test_the_four_forms_of_a_prompt(prompt: Any, expected: Any) -> None:
    assert parse_completion({"prompt": prompt}).prompts == expected


@pytest.mark.parametrize(
    "prompt", ["", [], [[]], ["a", 1], [1, "a"], [True], [-1], 7, {}, ["x"] * 65]
)
def test_other_prompts_are_refused(prompt: Any) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        parse_completion({"prompt": prompt})
    assert caught.value.param and caught.value.param.startswith("prompt")


@given(st.dictionaries(st.sampled_from([f.name for f in CHAT.fields]) | st.text(), JSON))
def test_any_body_is_parsed_or_refused_by_name(body: dict[str, Any]) -> None:
    try:
        parse_chat({"messages": HI, **body})
    except MlccError as error:
        assert error.http_status == 400 and error.param is not None and len(error.message) < 500


@given(JSON)
def test_any_json_is_parsed_or_refused(body: Any) -> None:
    for parse in (parse_chat, parse_completion):
        try:
            parse(body)
        except MlccError as error:
            assert error.http_status == 400


def test_types_say_what_they_want() -> None:
    assert Number(0, 2).wants == "a number from 0 to 2"
    assert Integer(1).wants == "a whole number of at least 1"
    assert Text(("a", "b")).wants == "one of 'a', 'b'"
    assert "an array of 0 to 4 entries" in Either(Text(), Many(Text(), 0, 4)).wants
    with pytest.raises(InvalidRequestError, match="'x' must be a number from 0 to 2, not true"):
        Number(0, 2).check(True, "x")


def test_request_over_model_over_plain_sampling() -> None:
    defaults = recommended(
        {"temperature": 0.6, "top_p": 0.9, "top_k": 20, "min_p": "high", "eos_token_id": 2}
    )
    assert defaults == {"temperature": 0.6, "top_p": 0.9, "top_k": 20}
    params = to_params(
        parse_sampling(CHAT, {"temperature": 0.0, "top_p": 0.0}), defaults, max_tokens=16
    )
    assert (params.temperature, params.top_k, params.max_tokens) == (0.0, 20, 16)
    assert 0 < params.top_p < 1e-5
    assert to_params({"max_tokens": 3}, defaults, max_tokens=16).max_tokens == 3
    assert recommended({}) == {}
    assert recommended({"do_sample": False}) == {"temperature": 0}
    assert recommended({"temperature": float("nan")}) == {}


def test_the_sampling_in_force_is_the_models_else_the_engines() -> None:
    engine = SamplingParams()
    found = default_sampling({"temperature": 0.6, "top_k": 20, "top_p": "high"})
    assert (found["temperature"], found["top_k"]) == (0.6, 20)
    assert (found["top_p"], found["min_p"]) == (engine.top_p, engine.min_p)
    assert default_sampling({"do_sample": False})["temperature"] == 0


def test_a_row_of_the_table_is_all_that_sampling_needs() -> None:
    """Each field sets a parameter of the engine, so a new one is a row and an attribute; except
    that `echo` changes `logprobs`, and those that a model's generation_config.json alone sets."""
    known = {field.name for field in fields(SamplingParams)} - {"prompt_logprobs", *FORBIDS}
    for table in (CHAT, COMPLETION):
        assert {row.sets for row in table.fields if row.sets} == known
