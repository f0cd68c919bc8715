"""Templates of well-known families: rendered like jinja2 without bounds; their detected features of
calls and reasoning; and a typical answer of each, however it is cut into pieces."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cache, partial
from itertools import count
from typing import Any

import pytest
from jinja2.environment import Template
from jinja2.sandbox import ImmutableSandboxedEnvironment

from mlcc.api.chat_template.template import ChatTemplate
from mlcc.api.parsers.deltas import CallDelta, ContentDelta, ReasoningDelta
from mlcc.api.parsers.output_format import output_format_of
from mlcc.api.parsers.tools.prompted import with_prompted_tools
from mlcc.api.schema.tool_fields import Tool, ToolUse
from tests.runtime.parsers.model_families import FAMILIES, Family
from tests.runtime.parsers.tools_formats import TOOLS

SPECIAL = {"bos_token": "<s>", "eos_token": "</s>"}
USE = ToolUse(tuple(Tool(name, schema) for name, schema in TOOLS.items()))
SHOWN = [
    {"type": "function", "function": {"name": name, "description": "É <b>", "parameters": schema}}
    for name, schema in TOOLS.items()
]
SYSTEM: dict[str, Any] = {"role": "system", "content": "Be brief & 'kind'."}
CALL: dict[str, Any] = {
    "name": "get_weather",
    "arguments": {"city": "Rôme", "days": 3, "unit": "C"},
}
ID = "abcdef123"
TALK: list[dict[str, Any]] = [
    {"role": "user", "content": "Weather <in> Rome? é"},
    {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"id": ID, "type": "function", "function": CALL}],
    },
    {"role": "tool", "tool_call_id": ID, "name": "get_weather", "content": "21 °C"},
    {"role": "assistant", "content": "It has 21 °C."},
    {"role": "user", "content": "Tomorrow?"},
]
by_name = pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)


@cache
def template_of(source: str) -> ChatTemplate:
    """A template as a server has it: compiled and examined once, for all conversations."""
    return ChatTemplate(source, SPECIAL)


@cache
def unbounded(source: str) -> Template:
    """A template in jinja2 with the settings of transformers."""

    def tojson(value: Any, ensure_ascii: bool = False, indent: int | None = None) -> str:
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent)

    def refuse(message: str) -> None:
        raise AssertionError(message)

    env = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = refuse
    env.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    return env.from_string(source)


def tools_of(family: Family, shown: list[Any] | None) -> dict[str, Any]:
    """The variables of a template for a request's tools; Firefunction's as its model card has them,
    with the day alone of the time."""
    if family.tools_as != "functions":
        return {family.tools_as: shown}
    listed = json.dumps([tool["function"] for tool in shown or ()], indent=4, ensure_ascii=False)
    return {"functions": listed, "datetime": datetime.now().strftime("%Y-%m-%d")}


def talk_of(family: Family, tools: bool, system: bool) -> list[dict[str, Any]]:
    """The messages of a request."""
    talk: Sequence[Mapping[str, Any]] = [SYSTEM, *TALK] if system and family.system else TALK
    shown = SHOWN if tools else []
    if not family.native:
        return with_prompted_tools(talk, shown)
    if not tools:  # and none that were called
        return [dict(m) for m in talk if m["role"] != "tool" and "tool_calls" not in m]
    return [dict(m) for m in talk]


def as_its_maker_wants(
    family: Family, messages: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """The messages as the family's original template expects them."""
    text = json.dumps(messages)
    if family.format == "kimi":  # which writes the id, of this form, and not the name
        text = text.replace(ID, "functions.get_weather:0")
    made = json.loads(text)
    if not family.system and made[0]["role"] == "system":
        asked = made.pop(0)["content"]
        made[0]["content"] = f"{asked}\n\n{made[0]['content']}"
    for at, message in enumerate(made):
        if "tool_calls" in message and family.past:
            made[at : at + 2] = family.past
            break
        if "tool_calls" in message and family.one_turn:
            made[at : at + 3] = [_one_turn(*made[at : at + 3])]
            break
        if "tool_calls" in message and not family.shows_calls:
            del message["tool_calls"]
            message["content"] = family.silent
        for call in message.get("tool_calls", ()):
            message["content"] = family.silent
            if family.arguments_as_text:
                given = call["function"]["arguments"]
                call["function"]["arguments"] = json.dumps(given, ensure_ascii=False)
    return list(made)


def _one_turn(
    call: dict[str, Any], result: dict[str, Any], expected_words: Mapping[str, Any] = {}
) -> dict[str, Any]:
    response = {"name": result["name"], "response": result["content"]}
    return {**call, "tool_responses": [response], "content": expected_words.get("content")}


@by_name
@pytest.mark.parametrize("tools", [True, False])
def test_it_renders_to_the_letter(family: Family, tools: bool) -> None:
    template = ChatTemplate(family.source, SPECIAL, ("<|im_end|>", "<s>", "[INST]", "｜"))
    for variables in family.variables:
        for generate, system in ((True, True), (True, False), (False, True)):
            talk = talk_of(family, tools, system)
            shown = SHOWN if tools and family.native else None
            given = {**variables, "tools": shown, "add_generation_prompt": generate}
            wanted = as_its_maker_wants(family, talk)
            asked = {**given, **tools_of(family, shown)}
            oracle = partial(unbounded(family.source).render, messages=wanted, **asked, **SPECIAL)
            before = oracle(documents=None)
            made = template.render(talk, **given)
            if made.text != before:  # a date may have changed between
                assert made.text == oracle(documents=None)
            assert "".join(made.pieces) == made.text
            expected_words = [CALL["arguments"]["city"], "21 °C"] if tools else []
            assert all(
                word in made.text or ascii(word)[1:-1] in made.text for word in expected_words
            )


@by_name
def test_its_calls_and_reasoning_are_known_from_it(family: Family) -> None:
    found = output_format_of(family.source)
    marks = found.tags.name if found.tags else None
    assert (found.format.name, marks, found.native) == (family.format, family.marks, family.native)


@by_name
def test_an_answer_however_it_is_cut(family: Family) -> None:
    output_format = output_format_of(family.source)
    shown = SHOWN if family.native else None
    prompt = template_of(family.source).render(
        talk_of(family, True, True), tools=shown, **family.variables[0]
    )
    assert prompt.text.endswith(family.ends_in)
    for size in range(1, 8):
        numbers = map(str, count())
        parser = output_format.parser(
            USE, output_format.opened(prompt.text), partial(next, numbers)
        )
        assert parser is not None
        pieces = []
        for at in range(0, len(family.answer), size):
            pieces += parser.push(family.answer[at : at + size])
        pieces += parser.flush()
        calls = [
            (piece.name, json.loads(piece.arguments))
            for piece in pieces
            if isinstance(piece, CallDelta)
        ]
        assert calls == family.calls
        assert "".join(p.text for p in pieces if isinstance(p, ContentDelta)) == family.content
        assert "".join(p.text for p in pieces if isinstance(p, ReasoningDelta)) == family.thought


@pytest.mark.parametrize("family", [one for one in FAMILIES if one.native], ids=lambda f: f.name)
def test_a_thought_before_a_call_is_kept_where_the_template_keeps_it(family: Family) -> None:
    talk = [TALK[0], {**TALK[1], "reasoning_content": "Ask <it>."}, TALK[2]]
    given = {"tools": SHOWN, "add_generation_prompt": True}
    wanted = as_its_maker_wants(family, talk)
    thought = wanted[1].pop("reasoning_content", "")
    if family.remembers == "block":
        wanted[1]["content"] = [{"type": "thinking", "thinking": thought}]
    elif family.remembers:
        wanted[1][family.remembers] = thought
    made = template_of(family.source).render(talk, **given).text
    variables = {**given, **tools_of(family, SHOWN)}
    assert made == unbounded(family.source).render(messages=wanted, **variables, **SPECIAL)
    assert ("Ask <it>." in made) == bool(family.remembers)


@pytest.mark.parametrize("name", ["mistral_v3", "ministral3"])
def test_ids_of_calls_are_of_any_length_whatever_a_template_asks(name: str) -> None:
    family = next(one for one in FAMILIES if one.name == name)
    template = template_of(family.source)
    long = json.loads(json.dumps(TALK).replace(ID, "call_0123456789abcdef01234567"))
    made = template.render(long, tools=SHOWN).text
    assert "get_weather" in made and "21 °C" in made
    assert "call_0123" not in made
    ids = re.findall(r'"(?:call_)?id": "([0-9a-f]{9})"', made)
    assert len(ids) == (2 if name == "mistral_v3" else 0) and len(set(ids)) < 2


def test_several_calls_of_a_turn_go_one_by_one_where_only_the_first_is_written() -> None:
    family = next(one for one in FAMILIES if one.name == "gpt_oss")
    now = {"id": "b", "type": "function", "function": {"name": "now", "arguments": {}}}
    first = TALK[1]["tool_calls"][0]
    turn = {**TALK[1], "content": "Both.", "tool_calls": [first, now], "reasoning_content": "Two."}
    results = [{"role": "tool", "tool_call_id": "b", "content": "noon"}, TALK[2]]  # out of order
    made = template_of(family.source).render([TALK[0], turn, *results]).text
    _, _, expected_words = made.partition("<|start|>assistant")
    assert "<|start|>assistant" + expected_words == (
        "<|start|>assistant<|channel|>analysis<|message|>Two.\n\nBoth.<|end|>"
        "<|start|>assistant to=functions.get_weather<|channel|>commentary json<|message|>"
        '{"city": "Rôme", "days": 3, "unit": "C"}<|call|>'
        '<|start|>functions.get_weather to=assistant<|channel|>commentary<|message|>"21 °C"<|end|>'
        "<|start|>assistant to=functions.now<|channel|>commentary json<|message|>{}<|call|>"
        '<|start|>functions.now to=assistant<|channel|>commentary<|message|>"noon"<|end|>'
        "<|start|>assistant"
    )


def test_gemma_4_gets_results_in_the_turn_of_the_call() -> None:
    family = next(one for one in FAMILIES if one.name == "gemma4")
    now = {"id": "b", "type": "function", "function": {"name": "now", "arguments": {}}}
    first = TALK[1]["tool_calls"][0]
    results = [
        {"role": "tool", "tool_call_id": ID, "content": '{"celsius": 21, "sky": "grey"}'},
        {"role": "tool", "tool_call_id": "b", "content": "[12, 30]"},
    ]
    talk = [TALK[0], {**TALK[1], "tool_calls": [first, now]}, *results]
    before = template_of(family.source).render(talk, tools=SHOWN, enable_thinking=True)
    turn = (
        '<|turn>model\n<|tool_call>call:get_weather{city:<|"|>Rôme<|"|>,days:3,unit:<|"|>C<|"|>}'
        "<tool_call|><|tool_call>call:now{}<tool_call|>"
        '<|tool_response>response:get_weather{celsius:21,sky:<|"|>grey<|"|>}<tool_response|>'
        '<|tool_response>response:now{value:<|"|>[12, 30]<|"|>}<tool_response|>'
    )
    assert before.text.endswith(turn)  # and there the answer goes on
    answered = [*talk, {"role": "assistant", "content": "Grey."}, TALK[4]]
    after = template_of(family.source).render(answered, tools=SHOWN).text
    assert f"{turn}Grey.<turn|>\n<|turn>user\nTomorrow?<turn|>\n" in after
