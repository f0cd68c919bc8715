"""The Kotlin types of the API equal the printed ones, and omit only fields without use."""

from __future__ import annotations

import re
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest

from mlcc.api.openai import shapes
from mlcc.api.schema.chat_fields import (
    CHAT,
    COMPLETION,
)
from mlcc.api.schema.message_fields import MESSAGE
from mlcc.api.schema.schema import Either, Flag, Integer, Many, Number, Text, Use, honoured
from tools.api_types import kotlin


def varies(hint: Any) -> bool:
    """Whether a member of an answer has more than one value."""
    return hint is not type(None) and not (get_origin(hint) is Literal and len(get_args(hint)) == 1)


def test_the_committed_types_are_what_the_generator_writes() -> None:
    same = kotlin.OUT.read_text(encoding="utf-8") == kotlin.render()
    assert same, "type: python -m tools.api_types"


def properties(text: str, name: str) -> set[str]:
    found = re.search(rf"data class {name}\(\n(.*?)^\)", text, re.DOTALL | re.MULTILINE)
    assert found, name
    return set(re.findall(r"^    val (\w+): ", found[1], re.MULTILINE))


def test_what_a_program_can_give_is_there() -> None:
    text = kotlin.render()
    for table in (CHAT, COMPLETION, MESSAGE):
        built = {kotlin.camel(field.name) for field in table.fields if field.use != Use.NOT_BUILT}
        assert properties(text, table.name) == built


def test_what_an_answer_may_vary_in_is_there() -> None:
    text = kotlin.render()
    classes = [getattr(shapes, name) for name in dir(shapes) if name[0].isupper()]
    answers = [kind for kind in classes if hasattr(kind, "__required_keys__")]
    assert len(answers) > 12
    for kind in answers:
        if kind.__name__ != "TypedDict":
            wanted = {
                kotlin.camel(name) for name, hint in get_type_hints(kind).items() if varies(hint)
            }
            assert properties(text, kind.__name__) == wanted


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (Flag(), "Boolean"),
        (Number(0, 1), "Double"),
        (Integer(1, 2**31 - 1), "Int"),
        (Integer(), "Long"),
        (Text(), "String"),
        (Text(("a", "b")), "SomeField"),
        (Many(Many(Text())), "List<List<String>>"),
        (Either(Text(), Many(Text())), "SomeField"),
    ],
)
def test_types(kind: Any, expected: str) -> None:
    assert kotlin.kotlin(kind, honoured("some_field", kind)) == expected
