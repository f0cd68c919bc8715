"""No name of an object comes twice, also where a schema leaves names open. The oracle is Python's
json; masks are compared with those of the grammar alone."""

from __future__ import annotations

import json
import random
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlcc.engine.sampling.grammar import Grammar, Structure
from mlcc.model.structured_output.unique_names import JsonState, UniqueNames
from tests.helpers.dictated_model import HERMES_TEMPLATE, PLAIN_TEMPLATE, scripted
from tests.helpers.service_calls import CHAT, answer_in, calls_to, chat_body
from tests.runtime.structured_output.test_schemas import END, GRAMMARS, TEXT, allowed_tokens

INT = {"type": "integer"}
OBJECT: dict[str, Any] = {"type": "object"}
CLOSED = {**OBJECT, "additionalProperties": False}
OPEN: list[dict[str, Any]] = [
    OBJECT,
    {**OBJECT, "additionalProperties": INT},
    {**OBJECT, "properties": {"k": INT}, "required": ["k"], "additionalProperties": INT,
     "minProperties": 3},
    {**CLOSED, "patternProperties": {"^b+$": INT}, "minProperties": 2},
    {**CLOSED, "properties": {"a": INT}, "patternProperties": {"^x.?$": {**CLOSED,
     "patternProperties": {"^[ab]*$": INT}}}},
    {"type": "array", "items": {**OBJECT, "additionalProperties": INT}, "minItems": 2},
]  # fmt: skip
NAMES = st.sampled_from(["a", "b", 'q"', "\\", "é", "😀", "", "{", "\ud83d"])
VALUES = st.recursive(
    st.sampled_from(["1", '"x"', '"{\\"a\\":1,\\"a\\":2}"', '"\\\\"', "[]"]),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda items: f"[{', '.join(items)}]"),
        st.lists(st.tuples(NAMES, st.booleans(), inner), max_size=3).map(
            lambda pairs: "{" + ",".join(f"{_spelled(n, a)} :{v}" for n, a, v in pairs) + "}"
        ),
    ),
)


def _spelled(name: str, ascii_only: bool) -> str:
    return json.dumps(name, ensure_ascii=ascii_only or "\ud83d" in name)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) < len(pairs):
        raise ValueError("a name comes twice")
    return dict(pairs)


def _is_unique(text: str) -> bool:
    try:
        json.loads(text, object_pairs_hook=_unique)
    except ValueError:
        return False
    return True


@given(VALUES, st.lists(st.integers(0, 60), max_size=4))
def test_a_repeated_name_is_found_however_the_text_is_cut(text: str, cuts: list[int]) -> None:
    data, state = text.encode(), JsonState()
    marks = [0, *sorted(cuts), len(data)]
    for first, last in pairwise(marks):
        after = None if state is None else state.after(data[first:last])
        state = after  # type: ignore[assignment]
    assert (state is not None) == _is_unique(text)


def _walk(schema: dict[str, Any], seed: int) -> str | None:
    """An answer that repeats its own text where it can; None if it did not come to its end."""
    grammar = GRAMMARS.open(Structure("json_schema", json.dumps(schema), "s"))
    draw, ids = random.Random(seed), []
    while not grammar.ended and len(ids) < 250:
        words = grammar.allowed()
        if grammar.dead_end:
            return None
        able = allowed_tokens(words)
        if END in able and (able == [END] or draw.random() < 0.3):
            break
        known = [t for t in ids if t in able]
        ids.append(draw.choice(known if known and draw.random() < 0.6 else able))
        _check_lookahead(grammar, ids[-1])
        grammar.accept(ids[-1])
    return TEXT.decode(ids) if grammar.ended or END in able else None


def _check_lookahead(grammar: Grammar, token: int) -> None:
    masks = grammar.lookahead([token])
    if masks and isinstance(grammar, UniqueNames):
        after = grammar._after(grammar._state, token)
        assert after is not None
        tokens = grammar._quotes.repeating(after, masks[0])
        assert tokens == []


@pytest.mark.parametrize("schema", OPEN, ids=lambda schema: json.dumps(schema)[:60])
def test_open_names_do_not_come_twice(schema: dict[str, Any]) -> None:
    texts = [text for seed in range(24) if (text := _walk(schema, seed)) is not None]
    assert len(texts) > 6, "most answers must come to their end"
    assert all(map(_is_unique, texts))


def test_a_dictated_repeat_gets_another_name(tmp_path: Path) -> None:
    """In an answer with a schema, and in the arguments of a call."""
    pattern = {"^ab{1,200}$": {"const": 1}}
    schema = {**CLOSED, "patternProperties": pattern, "maxProperties": 2}
    of_call = {"type": "function", "function": {"name": "f", "parameters": schema}}
    twice = '{"ab": 1, "ab": 1}'
    call = f'<tool_call>\n{{"name": "f", "arguments": {twice}}}\n</tool_call>'
    marks = ("<tool_call>", "</tool_call>")
    cases: list[tuple[str, str, dict[str, Any]]] = [
        (twice, PLAIN_TEMPLATE, {"guided_json": schema}),
        (call, HERMES_TEMPLATE, {"tools": [of_call], "tool_choice": "required"}),
    ]
    for text, template, more in cases:
        for stream in (False, True):
            with calls_to(scripted(tmp_path, text, template, marks=marks)) as calls:
                body = chat_body(CHAT, "hi", limit=60, stream=stream) | more
                answer = answer_in(CHAT, calls.post(CHAT, body))
            made = answer.content or "".join(answer.calls)
            assert json.loads(made) == {"ab": 1, "abb": 1}


def test_free_text_before_a_call_may_say_anything(tmp_path: Path) -> None:
    said = 'See {"a": 1, "a": 2}. <tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>'
    tools = [{"type": "function", "function": {"name": "f", "parameters": OBJECT}}]
    with calls_to(scripted(tmp_path, said, marks=("<tool_call>", "</tool_call>"))) as calls:
        answer = answer_in(CHAT, calls.post(CHAT, chat_body(CHAT, "hi", tools=tools)))
    assert answer.content.strip() == 'See {"a": 1, "a": 2}.' and answer.calls == ("{}",)


def test_free_text_instead_of_a_call_may_say_anything(tmp_path: Path) -> None:
    """Also where nothing is written before a call (GLM-4)."""
    said = 'See {"a": 1, "a": 2}.'
    tools = [{"type": "function", "function": {"name": "f", "parameters": OBJECT}}]
    model = scripted(tmp_path, said, PLAIN_TEMPLATE, tool_parser="glm4")
    with calls_to(model) as calls:
        answer = answer_in(CHAT, calls.post(CHAT, chat_body(CHAT, "hi", tools=tools)))
    assert answer.content == said and not answer.calls


def test_only_a_name_that_is_there_may_follow(tmp_path: Path) -> None:
    """A typed error, as for other dead ends."""
    schema = {**CLOSED, "patternProperties": {"^(x|bb+)$": INT}}
    with calls_to(scripted(tmp_path, '{"x": 1, "x": 2}', PLAIN_TEMPLATE)) as calls:
        response = calls.post(CHAT, chat_body(CHAT, "hi") | {"guided_json": schema})
    assert response.body["error"]["code"] == "grammar_dead_end"
    assert "may come once" in response.body["error"]["message"]
