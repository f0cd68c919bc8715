"""The demo model, too small to choose tools, is forced to call them: in every format, an answer
that its grammar allows is parsed as calls with valid arguments."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from mlcc import Engine
from mlcc.api.parsers.tools.registry import FORMATS
from mlcc.loader import open_model

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "set_light",
            "parameters": {
                "type": "object",
                "properties": {
                    "room": {"type": "string", "enum": ["hall", "kitchen"]},
                    "level": {"type": "integer", "minimum": 0, "maximum": 9},
                    "fade": {"type": "boolean"},
                },
                "required": ["room", "level"],
            },
        },
    },
    {
        "type": "function",
        "function": {"name": "stop", "parameters": {"type": "object", "properties": {}}},
    },
]
USER = [{"role": "user", "content": "Make it light in the kitchen."}]


@pytest.fixture(scope="module")
def path(compiled_demo: Callable[[str, str], Path]) -> Path:
    return compiled_demo("f32", "cpu")


def check(call: Any) -> None:
    given = json.loads(call.function.arguments)
    if call.function.name == "stop":
        assert given == {}
        return
    assert call.function.name == "set_light"
    assert given.keys() <= {"room", "level", "fade"}
    assert given["room"] in ("hall", "kitchen")
    assert given["level"] in range(10)
    assert isinstance(given.get("fade", True), bool)


@pytest.mark.feature("tools", "cpu", "runs")
@pytest.mark.parametrize("name", FORMATS)
def test_calls_that_are_required_validate(path: Path, name: str) -> None:
    model = open_model(path).with_parsers(name, None)
    with Engine.of(lambda: model) as engine:
        named = {"type": "function", "function": {"name": "set_light"}}
        asked = {"messages": USER, "tools": TOOLS, "max_tokens": 200}
        ask = partial(engine.chat.completions.create, **asked)
        one = ask(tool_choice="required", parallel_tool_calls=False, seed=1).choices[0]
        light = ask(tool_choice=named, seed=2).choices[0]
        for made in one, light:
            assert made.finish_reason == "tool_calls", made
            assert made.message.content is None
            (call,) = made.message.tool_calls
            check(call)
        assert light.message.tool_calls[0].function.name == "set_light"
        several = ask(tool_choice="required", seed=3).choices[0]  # perhaps more than fit
        for call in several.message.tool_calls or ():
            check(call)
