"""The Swift types of the API equal the printed ones, and omit only fields without use."""

from __future__ import annotations

import re
from typing import Any

import pytest

from mlcc.api.openai.embeddings import EMBEDDING, RERANK, SCORE
from mlcc.api.schema.chat_fields import CHAT, COMPLETION
from mlcc.api.schema.message_fields import MESSAGE, MESSAGE_CONTENT
from mlcc.api.schema.schema import ByToken, Either, Flag, Integer, Many, Number, Text, Use, honoured
from tools.api_types import swift
from tools.api_types.kotlin import camel


def test_the_committed_types_are_what_the_generator_writes() -> None:
    same = swift.OUT.read_text(encoding="utf-8") == swift.render()
    assert same, "type: python -m tools.api_types"


def body(text: str, name: str) -> str:
    found = re.search(rf"^public \w+ {name}: .*?^}}", text, re.DOTALL | re.MULTILINE)
    assert found, name
    return found[0]


def test_each_request_has_the_fields_that_are_built() -> None:
    text = swift.render()
    for table in (CHAT, COMPLETION, MESSAGE, EMBEDDING, SCORE, RERANK):
        built = {camel(field.name) for field in table.fields if field.use != Use.NOT_BUILT}
        found = re.findall(r"^    public var `?(\w+)`?: ", body(text, table.name), re.MULTILINE)
        assert set(found) == built


def test_an_unknown_word_is_kept() -> None:
    """No enumeration of Swift, which would refuse it, but a struct around the word."""
    reason = body(swift.render(), "FinishReason")
    assert (
        "RawRepresentable" in reason
        and 'toolCalls = FinishReason(rawValue: "tool_calls")' in reason
    )


def test_every_type_is_defined_once() -> None:
    names = re.findall(r"^public (?:struct|enum) (\w+)", swift.render(), re.MULTILINE)
    assert len(names) == len(set(names)) > 60


def test_images_are_a_case_of_a_message_s_parts() -> None:
    assert "case image(ImagePart)" in body(swift.render(), "ContentPart")
    assert swift.swift(MESSAGE_CONTENT, honoured("content", MESSAGE_CONTENT)) == "Content"


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (Flag(), "Bool"),
        (Number(0, 1), "Double"),
        (Integer(), "Int"),
        (Text(), "String"),
        (Text(("a", "b")), "SomeField"),
        (Many(Many(Text())), "[[String]]"),
        (ByToken(Number(), 3), "[Int: Double]"),
        (Either(Text(), Many(Text())), "SomeField"),
    ],
)
def test_types(kind: Any, expected: str) -> None:
    assert swift.swift(kind, honoured("some_field", kind)) == expected
