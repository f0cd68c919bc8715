"""The TypeScript types of the API, and the step tables in TypeScript and C++, equal the printed
ones, with every field."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from mlcc.api.openai import shapes
from mlcc.api.schema.chat_fields import CHAT, COMPLETION
from mlcc.api.schema.schema import Flag, Integer, Many, Text
from tools import step_tables
from tools.api_types import typescript


def test_the_committed_types_are_what_the_generator_writes() -> None:
    same = typescript.OUT.read_text(encoding="utf-8") == typescript.render()
    assert same, "type: python -m tools.api_types"


@pytest.mark.parametrize("path", step_tables.FILES, ids=lambda path: path.name)
def test_the_columns_of_steps_are_what_python_prints(path: Path) -> None:
    same = path.read_text(encoding="utf-8") == step_tables.FILES[path]()
    assert same, "type: python -m tools.step_tables"


def members(text: str, name: str) -> set[str]:
    found = re.search(rf"interface {name}(?: extends (\w+))? {{\n(.*?)\n}}", text, re.DOTALL)
    assert found, name
    inherited = members(text, found[1]) if found[1] else set()
    return inherited | set(re.findall(r"^  (\w+)\??: ", found[2], re.MULTILINE))


def test_every_field_of_every_shape_is_there() -> None:
    text = typescript.render()
    for table in (CHAT, COMPLETION):
        assert members(text, table.name) == {field.name for field in table.fields}
    classes = [getattr(shapes, name) for name in dir(shapes) if name[0].isupper()]
    answers = [kind for kind in classes if hasattr(kind, "__required_keys__")]
    assert len(answers) > 12
    for kind in answers:
        if kind.__name__ != "TypedDict":
            assert members(text, kind.__name__) == set(get_type_hints(kind))


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (Flag(), "boolean"),
        (Text(("a", "b")), "'a' | 'b'"),
        (Many(Many(Integer())), "readonly (readonly number[])[]"),
        (Many(Text(("a", "b"))), "readonly ('a' | 'b')[]"),
    ],
)
def test_types(kind: Any, expected: str) -> None:
    assert typescript.typescript(kind) == expected


def test_values_that_change_nothing_are_types_of_one_value() -> None:
    values = [False, 0, "", [], {}, {"type": "text"}, ["text"]]
    assert [typescript.literal(value) for value in values] == [
        "false", "0", "''", "readonly []", "Record<string, never>", "{ type: 'text' }",
        "readonly ['text']",
    ]  # fmt: skip
