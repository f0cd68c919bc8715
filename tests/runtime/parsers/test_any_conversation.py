"""Conversations as clients send them, with the template of every family: two system messages, a
later one, two user messages, an assistant's first, a user's behind a tool's. No word is lost, and
every text stays behind the marks of its role, which plain jinja2 shows."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlcc.api.chat_template.template import ChatTemplate
from mlcc.api.openai.requests import parse_chat
from mlcc.service.generate import ChatPlan
from tests.helpers.toy.toy_model import toy_text
from tests.runtime.parsers.model_families import FAMILIES, Family
from tests.runtime.parsers.test_model_families import (
    SHOWN,
    SPECIAL,
    template_of,
    tools_of,
    unbounded,
)

Body = dict[str, Any]
KINDS = ("system", "developer", "user", "assistant", "call", "call with words")
WORD = re.compile(r"zq([suatc])\d+x")
TEXTS = {family.name: replace(toy_text(), chat_template=template_of(family.source))
         for family in FAMILIES}  # fmt: skip
by_name = pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)


def conversation(kinds: list[str]) -> list[Body]:
    """Messages, each with a word of its own that says its role."""
    made: list[Body] = []
    for n, kind in enumerate(kinds):
        if kind.startswith("call"):
            words = f"zqa{n}0x" if kind != "call" else None
            function = {"name": "now", "arguments": json.dumps({"at": f"zqc{n}1x"})}
            call = {"id": f"c{n}", "type": "function", "function": function}
            made.append({"role": "assistant", "content": words, "tool_calls": [call]})
            made.append({"role": "tool", "tool_call_id": f"c{n}", "content": f"zqt{n}2x"})
        else:
            role = "s" if kind in ("system", "developer") else kind[0]
            made.append({"role": kind, "content": f"zq{role}{n}0x"})
    return made


def prompt_of(family: Family, messages: list[Body], tools: bool = False) -> str:
    parsed = parse_chat({"messages": messages, **({"tools": SHOWN} if tools else {})})
    plan = ChatPlan(parsed, TEXTS[family.name])
    return TEXTS[family.name].render(plan.messages, plan.variables)[0].text


def pieces(prompt: str) -> list[tuple[str, str]]:
    """The role of each word and what is written before it, behind the word before."""
    found, at = [], 0
    for match in WORD.finditer(prompt):
        found.append((match[1], prompt[at : match.start()]))
        at = match.end()
    return found


@cache
def marks(name: str) -> dict[str, list[str]]:
    """What a family's template writes before words of users and of assistants, by plain jinja2."""
    (family,) = (family for family in FAMILIES if family.name == name)
    found: dict[str, list[str]] = {"u": [], "a": []}
    for start in ("system", "user")[not family.system :]:
        talk = [{"role": "user", "content": "zqu1x"}, {"role": "assistant", "content": "zqa2x"}]
        first = [{"role": "system", "content": "zqs0x"}] if start == "system" else []
        given = {"messages": [*first, *talk, talk[0]], "tools": None, **tools_of(family, None)}
        for role, before in pieces(unbounded(family.source).render(**given, **SPECIAL)):
            found.setdefault(role, []).append(before)
    return found


def shared(text: str, other: str) -> int:
    """The length of the beginning that two texts share."""
    pairs = enumerate(zip(text, other, strict=False))
    return next((n for n, (a, b) in pairs if a != b), min(len(text), len(other)))


def alike(text: str, others: list[str]) -> int:
    return max(shared(text[::-1], other[::-1]) for other in others)


@by_name
@settings(max_examples=12)
@given(kinds=st.lists(st.sampled_from(KINDS), min_size=1, max_size=6), tools=st.booleans())
def test_no_word_is_lost_and_roles_keep_their_marks(
    family: Family, kinds: list[str], tools: bool
) -> None:
    messages = conversation(kinds)
    prompt = prompt_of(family, messages, tools)
    sent = [match[0] for match in WORD.finditer(json.dumps(messages))]
    came = [match[0] for match in WORD.finditer(prompt)]
    assert sorted(sent) == sorted(came)
    assert [word for word in sent if word[2] != "s"] == [word for word in came if word[2] != "s"]
    opening = marks(family.name)
    for role, before in pieces(prompt)[1:]:
        if role in "ua" and before != "\n\n":  # a part of the turn before
            other = {"u": "a", "a": "u"}[role]
            assert alike(before, opening[role]) >= alike(before, opening[other]), before


@by_name
def test_a_growing_conversation_keeps_its_beginning(family: Family) -> None:
    """A system message in the middle does not change what is before it, as far as the template
    itself does not."""
    talk = conversation(["system", "user", "assistant", "user"])
    before, after = (prompt_of(family, talk[:n]) for n in (2, 4))
    kept = shared(before, after)
    late = conversation(["system", "user", "assistant", "system", "user"])
    if family.name not in ("deepseek_v3_1", "glm4_0414", "hunyuan_7b"):  # all in front, as made
        assert shared(before, prompt_of(family, late)) == kept


def test_a_sound_conversation_is_as_the_template_has_it() -> None:
    """Where a template renders the messages as they are, they are not touched."""
    kinds = ["system", "developer", "user", "user", "assistant", "assistant", "system", "user"]
    for name in ("qwen2_5", "phi4", "granite4", "command_r7b"):
        family = next(one for one in FAMILIES if one.name == name)
        messages = [{**one, "role": one["role"].replace("developer", "system")}
                    for one in conversation(kinds)]  # fmt: skip
        plain = unbounded(family.source).render(
            messages=messages, tools=None, documents=None, add_generation_prompt=True, **SPECIAL
        )
        assert prompt_of(family, messages) == plain


@by_name
@pytest.mark.parametrize(
    "arguments",
    [
        '{"q": "qua', '["quay"]', '"quay"', "17", "null", "", " ", '{"q": 1, "q": 2}', "{}{}",
        '{"a":' * 5000, '{"a":' * 60 + "1" + "}" * 60, '{"q": "\\ud800"}', f'{{"q": {"9" * 5000}}}',
        {"q": "\ud800"}, None, '{"q": null, "r": [1, {"s": null}], "t": true, "items": {}}',
    ],
    ids=range(16),
)  # fmt: skip
def test_arguments_of_earlier_calls_are_an_object(family: Family, arguments: Any) -> None:
    messages = conversation(["user", "call", "user"])
    messages[1]["tool_calls"][0]["function"]["arguments"] = arguments
    prompt = prompt_of(family, messages, True)
    prompt.encode()
    assert prompt.count("zqt12x") == 1
    if isinstance(arguments, str) and "qua" in arguments:
        assert "qua" in prompt  # what the model wrote is not lost


@by_name
def test_every_optional_field_of_a_tool_is_optional(family: Family) -> None:
    odd = {
        "a": {}, "b": {"enum": ["x", 1, None]}, "c": {"anyOf": [{"type": "null"}, {}]},
        "d": {"type": ["string", "null"], "description": None, "default": None}, "e": True,
        "f": {"type": "array"}, "g": {"type": "object", "properties": None, "required": None},
        "h": {"type": "integer", "enum": [1, 2], "default": 2}, "i": {"$ref": "#/$defs/x"},
        "j": {"type": "array", "items": None}, "k": None, "l": {"type": "string", "enum": None},
    }  # fmt: skip
    for parameters in (None, {}, {"type": "object"}, {"properties": {}}, {"type": None},
                       {"type": "object", "properties": None, "required": None},
                       *({"type": "object", "properties": {name: odd[name]}} for name in odd),
                       {"type": "object", "properties": odd, "required": ["a"]}):  # fmt: skip
        for more in ({}, {"description": None}):
            function = {"name": "zq_tool", "parameters": parameters, **more}
            parsed = parse_chat(
                {
                    "messages": conversation(["user"]),
                    "tools": [{"type": "function", "function": function}],
                }
            )
            plan = ChatPlan(parsed, TEXTS[family.name])
            prompt = TEXTS[family.name].render(plan.messages, plan.variables)[0].text
            assert "zq_tool" in prompt and "zqu00x" in prompt


def two_calls(ids: list[str], answered: list[str]) -> list[Body]:
    given = [json.dumps({"n": f"zqc{n}x"}) for n in range(len(ids))]
    functions = [{"name": "now", "arguments": text} for text in given]
    calls = [
        {"id": one, "type": "function", "function": function}
        for one, function in zip(ids, functions, strict=True)
    ]
    results = [
        {"role": "tool", "tool_call_id": one, "content": f"zqt{n}x"}
        for n, one in enumerate(answered)
    ]
    user = {"role": "user", "content": "zqu9x"}
    return [user, {"role": "assistant", "content": None, "tool_calls": calls}, *results, user]


@by_name
@pytest.mark.parametrize(
    ("ids", "answered"),
    [
        (["a", "b"], ["b", "a"]),
        (["same", "same"], ["same", "same"]),
        (["a", "b"], ["a"]),
        (["call_0123456789abcdef0123456789abcdef", "toolu/1:ü x"],) * 2,
        ([""], ["other"]),
        ([""], [""]),
    ],
)
def test_calls_and_results_whatever_their_ids(
    family: Family, ids: list[str], answered: list[str]
) -> None:
    """Ids of any length and form, also used twice, or without a result: each is written once."""
    prompt = prompt_of(family, two_calls(ids, answered), True)
    for n in range(len(ids)):
        assert prompt.count(f"zqc{n}x") == 1
    for n in range(len(answered)):
        assert prompt.count(f"zqt{n}x") == 1


@by_name
def test_results_are_paired_with_their_calls(family: Family) -> None:
    """Where no id is written, the place of a result says which call it answers."""
    ids = ["call_one", "call_two"]
    swapped, straight = (
        prompt_of(family, two_calls(ids, order), True) for order in (ids[::-1], ids)
    )
    exchange = {"zqt0x": "zqt1x", "zqt1x": "zqt0x"}
    same = re.sub("zqt[01]x", lambda match: exchange[match[0]], straight)
    if "tool_call_id" not in family.source or family.name == "gpt_oss":
        assert swapped == same  # as if the results had come in order
    else:
        assert swapped != same
        assert sorted(WORD.findall(swapped)) == sorted(WORD.findall(straight))


def test_kimis_results_name_their_calls() -> None:
    """Moonshot's guide to tool calls: an id is `functions.NAME:N`, N counted from 0."""
    family = next(one for one in FAMILIES if one.name == "kimi_k2")
    prompt = prompt_of(family, two_calls(["x", "y"], ["y", "x"]), True)
    calls = re.findall(r"<\|tool_call_begin\|>(.*?)<.*?(zqc\d)", prompt)
    assert calls == [("functions.now:0", "zqc0"), ("functions.now:1", "zqc1")]
    results = re.findall(r"## Return of (\S+)\s+(zqt\d)", prompt)
    assert results == [("functions.now:1", "zqt0"), ("functions.now:0", "zqt1")]


@by_name
@pytest.mark.parametrize("content", ["", " ", None])
def test_an_empty_answer_is_no_obstacle(family: Family, content: str | None) -> None:
    talk = conversation(["user", "assistant", "user"])
    talk[1] = {"role": "assistant", "content": content, "reasoning_content": "Hm."}
    plain = {"role": "assistant", "content": content or ""}
    for turn in (talk[1], plain):
        prompt = prompt_of(family, [talk[0], turn, talk[2]])
        assert prompt.index("zqu00x") < prompt.index("zqu20x")


@by_name
@pytest.mark.parametrize("tools", [False, True])
@pytest.mark.parametrize("before", [[], ["user"], ["system", "user", "assistant"]], ids=len)
def test_a_result_whose_call_was_cut_off(family: Family, before: list[str], tools: bool) -> None:
    """As of clients that send the last messages of a conversation only."""
    rest = conversation([*before, "call", "user"])
    del rest[len(before)]
    prompt = prompt_of(family, rest, tools)
    found = [word for word in (match[0] for match in WORD.finditer(prompt)) if word[2] != "s"]
    assert found == [one["content"] for one in rest if one["role"] != "system"]


def test_a_result_without_a_call_has_a_name() -> None:
    """Kimi K3's template refuses a result whose tool it cannot name."""
    named = ChatTemplate(
        "{% for m in messages %}{% if m.role == 'tool' and not m.name and not m.tool_calls %}"
        "{% set call = messages | selectattr('tool_calls', 'defined') | list %}"
        "{% if not call %}{{ raise_exception('no name') }}{% endif %}{% endif %}"
        "{{ m.role }}: {{ m.name or '' }} {{ m.content }}\n{% endfor %}"
    )
    result = {"role": "tool", "tool_call_id": "z", "content": "zqt1x"}
    assert named.render([result]).text == "tool: unknown zqt1x\n"
    talk = [*two_calls(["a", "b"], ["a", "b"])[:-1]]
    assert "tool:  zqt0x\ntool:  zqt1x\n" in named.render(talk).text
