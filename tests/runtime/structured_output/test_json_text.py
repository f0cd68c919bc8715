"""Held JSON may be spelled in every way that RFC 8259 allows: any escape, in answers and in the
arguments of calls. What the masks allow is JSON for Python's json module, with the value that was
meant."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from mlcc.api.parsers.tools.syntax.lark import Lark
from mlcc.api.parsers.tools.syntax.python_text import python_body, python_calls
from mlcc.engine.sampling.grammar import Kind, Structure
from tests.helpers.dictated_model import HERMES_TEMPLATE, scripted
from tests.helpers.service_calls import CHAT, Calls, answer_in, calls_to, chat_body
from tests.runtime.structured_output.test_schemas import GRAMMARS, TEXT, allowed_tokens

SPELLED = [
    r'"caf\u00e9"', r'"caf\u00E9"', r'"\u0063af\u00e9"', r'"http:\/\/a"', r'"\ud83d\ude00"',
    r'"\uD83D\uDE00!"', r'"\"\\\/\b\f\n\r\t"', '"\x7f"', '"é😀"', r'"\u0000\u001f\u2028"',
    r'"a\\"', r'"\\u00e9"', '""',
]  # fmt: skip
WRONG = [r'"\ud83d"', r'"\ud83dx"', r'"\ude00"', r'"\u00g0"', r'"\x41"', r'"\'"', '"\n"', '"a']
SHORT: dict[str, Any] = {"type": "string", "maxLength": 9}
TREE: dict[str, Any] = {
    "$defs": {"t": {"type": "object", "properties": {"s": {"type": "string"}, "t": {
        "anyOf": [{"$ref": "#/$defs/t"}, {"type": "null"}]}}, "required": ["s"]}},
    "$ref": "#/$defs/t",
}  # fmt: skip


def closed(inner: Any) -> dict[str, Any]:
    one = {"required": ["k"], "additionalProperties": False}
    return {"type": "object", "properties": {"k": inner}, **one}


FORMS: list[tuple[Any, str]] = [
    ({"type": "object"}, '{"k": %s}'),
    ({"type": "object"}, "{%s: 1}"),
    ({}, "[%s, true]"),
    ({"type": "string"}, "%s"),
    (closed(SHORT), '{"k": %s}'),
    (closed({"type": ["string", "null"]}), '{\n  "k":%s}'),
    (closed({"anyOf": [{"type": "integer"}, {"type": "string"}]}), '{"k": %s}'),
    (closed({"type": "array", "items": {"type": "string"}, "minItems": 2}), '{"k": [%s,"b"]}'),
    ({"type": "object", "additionalProperties": {"type": "string"}}, '{"a": "", %s: %s}'),
    ({"type": "object", "properties": {"o": {"type": "integer"}}}, '{"o": 1, "p": %s}'),
    (TREE, '{"s": %s, "t": {"s": %s, "t": null}}'),
]


def allowed(schema: Any, text: str, kind: Kind = "json_schema") -> bool:
    """Whether the masks allow this text, token by token, and then the end."""
    source = schema if isinstance(schema, str) else json.dumps(schema)
    grammar = GRAMMARS.open(Structure(kind, source, "s"))
    for token in TEXT.encode(text, add_special_tokens=False):
        if grammar.ended or not grammar.allowed()[token // 32] >> token % 32 & 1:
            return False
        grammar.accept(token)
    return grammar.ended or bool(grammar.allowed()[0] >> 3 & 1)


@pytest.mark.parametrize(("schema", "form"), FORMS, ids=lambda v: json.dumps(v)[:50])
def test_every_spelling_of_a_string_is_allowed(schema: Any, form: str) -> None:
    for spelled in SPELLED:
        text = form.replace("%s", spelled)
        valid = jsonschema.Draft202012Validator(schema).is_valid(json.loads(text))
        assert allowed(schema, text) is valid, text
    for spelled in WRONG:
        assert not allowed(schema, form.replace("%s", spelled)), spelled


PATTERNS = [
    "^caf.$", "^ca", "a", "^[A-Z]{3}$", r"^https?:\/\/[^\s]+$", r"^\d{4}-\d\d$", r"^[\w.-]+@\w+$",
    '^(é|"x)$', "^[^/]*$", r"\S", ".*", r"^[\u00e0-\u00ff]+$", "^(?:a|b){1,2}$", "[^a-z]",
]  # fmt: skip
VALUES = ["café", "cafe", "ABC", "https://a/é", "2020-11", "a.b@c", "a", "ab", "é", '"x', "a/b",
          "", "\n", "😀", "x y", "\\"]  # fmt: skip


@pytest.mark.parametrize("pattern", PATTERNS)
def test_every_spelling_of_a_string_with_a_pattern(pattern: str) -> None:
    """The judge of the value is Python's re, which agrees with ECMA 262 on these."""
    schema = {"type": "string", "pattern": pattern, "maxLength": 12}
    for value in VALUES:
        units = value.encode("utf-16-be").hex().upper()
        coded = "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))
        plain = json.dumps(value, ensure_ascii=False)
        for spelled in (plain, json.dumps(value), plain.replace("/", "\\/"), f'"{coded}"'):
            matches = re.search(pattern, json.loads(spelled)) is not None
            assert allowed(schema, spelled) is matches, spelled


INT = {"type": "integer"}


@pytest.mark.parametrize(
    ("schema", "text", "right"),
    [
        ({"enum": ["é", "è", "e"]}, r'"\u00e9"', True),
        ({"enum": ["é", "è", "e"]}, r'"\u00ea"', False),
        ({"enum": ["a/b", "a"]}, r'"a\/b"', True),
        ({"const": "😀"}, r'"\uD83D\ude00"', True),
        ({"enum": ["😀", "b"]}, r'"\ud83d\ude01"', False),
        (closed(INT) | {"properties": {"k": INT, "é": INT}}, r'{"k": 1, "\u00e9": 2}', True),
        ({"type": "object", "properties": {"a/b": INT}}, r'{"a\/b": 1}', True),
        ({"type": "object", "properties": {"a/b": INT}}, r'{"a\/b": "x"}', False),
        ({"type": "object", "properties": {"é": INT}}, r'{"\u00e9": "x"}', False),
        ({"type": "object", "properties": {"o": INT}}, r'{"\u006f": "x"}', False),
        ({"type": "object", "properties": {"o": INT}}, r'{"o": 1, "\u006F": 2}', False),
        ({"type": "object", "properties": {"\n": INT}}, r'{"\u000a": "x"}', False),
        ({"type": "object", "properties": {"o": INT}}, r'{"\u00e9\/😀": "x"}', True),
        ({"type": "object", "properties": {"k": {"anyOf": []}}}, '{"k":}', False),
        ({"type": "object", "properties": {"k": {"anyOf": []}}}, "{}", True),
    ],
)
def test_names_and_constants_in_every_spelling(schema: Any, text: str, right: bool) -> None:
    """No spelling of a name leads around its schema, or to the name a second time."""
    assert allowed(schema, text) is right
    if right:
        assert jsonschema.Draft202012Validator(schema).is_valid(json.loads(text))


OBJECT: dict[str, Any] = {"type": "object"}
A_NUMBER: dict[str, Any] = {**OBJECT, "patternProperties": {"^a": INT}}
NAMED: dict[str, Any] = {**OBJECT, "properties": {"k": INT}, "required": ["k"]}
KIND = {"kind": {"const": "cat"}, "n": INT}
CAT = {**OBJECT, "properties": KIND, "required": ["kind", "n"], "additionalProperties": False}
DOG = {**OBJECT, "properties": {"kind": {"const": "dog"}}, "required": ["kind"]}
NAMES: list[tuple[dict[str, Any], list[str], list[str]]] = [
    (A_NUMBER, ['{"a": 1}', '{"b": "x"}', r'{"\u00e9": "x", "a\/b": 2}'],
     [r'{"\u0061": "x"}', '{"ab": "x"}', r'{"a\/b": "x"}', r'{"a\u00e9": "x"}']),
    ({**A_NUMBER, "additionalProperties": False}, ['{"a": 1}', r'{"aé": 1, "a\u00e8": 2}', "{}"],
     ['{"b": 1}', r'{"\u0062": 1}']),
    ({**OBJECT, "patternProperties": {"^é": INT}, "additionalProperties": {"type": "null"}},
     ['{"é": 1}', r'{"\u00e9": 1}', '{"e": null}'], [r'{"\u00e9": null}', '{"e": 1}']),
    ({**OBJECT, "properties": {"ab": {}}, "patternProperties": {"^a": {"minimum": 5}}},
     ['{"ab": 5}', '{"ab": "x"}'], ['{"ab": 4}', '{"ac": 4}', '{"ab": 5, "ab": 6}']),
    ({**OBJECT, "required": ["k"]}, ['{"k": 1, "l": 2}'],
     [r'{"\u006b": 1}', '{"k": 1, "k": 2}', r'{"k": 1, "\u006b": 2}']),
    ({**OBJECT, "properties": {"k": False}}, ['{"l": 1}', "{}"], ['{"k": 1}', r'{"\u006b": 1}']),
    ({**NAMED, "minProperties": 2}, ['{"k": 1, "l": "x"}'], ['{"k": 1}', r'{"k": 1, "\u006b": 1}']),
    ({**OBJECT, "minProperties": 1, "maxProperties": 2}, ['{"a": 1}', '{"a": 1, "b": 2}'],
     ["{}", '{"a": 1, "b": 2, "c": 3}']),
    ({**OBJECT, "minProperties": 1}, ['{"a": 1}'], ["{}"]),
    ({"properties": {"k": INT}}, ['{"k": 1}', "3", '"x"', "[1]", "true"],
     ['{"k": "x"}', r'{"\u006b": "x"}']),
    ({**OBJECT, "properties": {"k": INT}, "anyOf": [{"required": ["k"]}, {"required": ["l"]}]},
     ['{"k": 1}', '{"l": 1}'], ['{"m": 1}', r'{"l": 1, "\u006b": "x"}']),
    ({"allOf": [NAMED, {"title": "T", "properties": {"l": {"type": "null"}}}]},
     ['{"k": 1, "l": null}', '{"k": 1}'], [r'{"k": 1, "\u006c": 3}', r'{"k": 1, "\u006b": "x"}']),
    ({"allOf": [NAMED, {**OBJECT, "properties": {"l": {}}, "additionalProperties": INT}]},
     ['{"k": 1, "l": "x", "m": 3}'], ['{"k": 1, "m": "x"}']),
    ({"$defs": {"A": NAMED}, "$ref": "#/$defs/A", "properties": {"k": {"minimum": 3}}},
     ['{"k": 4}'], ['{"k": 2}', r'{"k": 4, "\u006b": 2}']),
    ({"oneOf": [CAT, DOG]}, ['{"kind": "cat", "n": 1}', r'{"kind": "dog", "b": "\u00e9"}'],
     ['{"kind": "cat"}', '{"kind": "cow"}', r'{"\u006bind": "dog"}']),
    ({**OBJECT, "required": ["kind"], "oneOf": [CAT, DOG]}, ['{"kind": "dog", "x": 1}'],
     ['{"kind": "cat", "n": 1, "x": 1}', r'{"kind": "dog", "\u006bind": 1}']),
    ({**NAMED, "patternProperties": {"(?i)^a": INT}}, ['{"k": 1, "b": "x"}'],
     [r'{"k": 1, "\u006b": "x"}', '{"k": 1, "A": "x"}', r'{"k": 1, "\u0041": "x"}']),
]  # fmt: skip


@pytest.mark.parametrize(("schema", "right", "wrong"), NAMES, ids=lambda v: json.dumps(v)[:60])
def test_no_spelling_of_a_name_goes_round_its_schema(
    schema: dict[str, Any], right: list[str], wrong: list[str]
) -> None:
    judge = jsonschema.Draft202012Validator(schema)
    for text in right:
        assert allowed(schema, text) and judge.is_valid(json.loads(text)), text
    for text in wrong:
        assert not allowed(schema, text), text
        repeats = len(set(json.loads(text))) < text.count(": ")
        assert repeats or not judge.is_valid(json.loads(text)) or "\\" in text, text


@pytest.mark.parametrize("schema", [{"const": "a/é"}, {"enum": ["a/é", "b\n"]}, SHORT,
                                    {"type": "string", "pattern": "^a.é$"}], ids=str)  # fmt: skip
def test_what_the_masks_let_begin_has_an_end(schema: dict[str, Any]) -> None:
    """No escape may begin that only another character can end."""
    draw = random.Random(7)
    for _ in range(30):
        grammar = GRAMMARS.open(Structure("json_schema", json.dumps(schema), "s"))
        ids: list[int] = []
        while not grammar.ended and len(ids) < 200:
            words = grammar.allowed()
            able = [t for t in allowed_tokens(words) if t != 3]
            assert able
            escapes = [t for t in able if TEXT.decode([t]).startswith(("\\", "u", "0", "/"))]
            ids.append(draw.choice(escapes if escapes and draw.random() < 0.7 else able))
            grammar.accept(ids[-1])
        if grammar.ended:
            jsonschema.validate(json.loads(TEXT.decode(ids)), schema)


PARAMETERS = closed({"type": "string"})
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": PARAMETERS}}]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Calls]:
    def answer(prompt: str) -> str:
        said_so = prompt.rpartition("say ")[2].partition("<|im_end|>")[0].partition("\n")[0]
        call = f'<tool_call>\n{{"name": "f", "arguments": {said_so}}}\n</tool_call>'
        return call if "call" in prompt.rpartition("user")[2] else said_so

    folder: Path = tmp_path_factory.mktemp("scripted")
    marks = ("<tool_call>", "</tool_call>")
    with calls_to(scripted(folder, answer, HERMES_TEMPLATE, marks=marks)) as calls:
        yield calls


def test_arguments_in_pythons_syntax_hold_what_python_reads_as_json_does() -> None:
    schema = {"type": "object", "properties": {"k": {"type": "string"}}, "required": ["k"]}
    lark = Lark()
    grammar = lark.written(python_body("f", schema, lark))
    for spelled in [*SPELLED, *WRONG]:
        text = f"f(k={spelled})"
        held = allowed(grammar, text, "grammar")
        assert held == ("\\/" not in spelled and spelled in SPELLED and "\x7f" not in spelled)
        if held:
            (call,) = python_calls(text, {"f": schema})
            assert json.loads(call.arguments) == {"k": json.loads(spelled)}


@pytest.mark.parametrize("stream", [False, True])
def test_answers_and_arguments_are_as_the_model_spelled_them(service: Calls, stream: bool) -> None:
    for spelled in (r'"caf\u00e9"', r'"http:\/\/a\ud83d\ude00"'):
        text = f'{{"k": {spelled}}}'
        body = chat_body(CHAT, f"say {text}", stream=stream)
        schema = {"type": "json_schema", "json_schema": {"name": "x", "schema": PARAMETERS}}
        for form in ({"type": "json_object"}, schema):
            made = answer_in(CHAT, service.post(CHAT, {**body, "response_format": form}))
            assert made.content == text
        body = chat_body(CHAT, f"call, say {text}", stream=stream, tools=TOOLS)
        for choice in ("auto", "required"):
            made = answer_in(CHAT, service.post(CHAT, {**body, "tool_choice": choice}))
            assert [json.loads(call) for call in made.calls] == [json.loads(text)]


@pytest.mark.parametrize("kind", [None, ["string", "null"], ["string", "integer", "null"]])
def test_an_enum_of_several_types_in_every_spelling(kind: Any) -> None:
    """As libraries write an optional one: the strings in every spelling of RFC 8259, and the other
    values of the types that are allowed."""
    types = {} if kind is None else {"type": kind}
    inner = {"enum": ["caf\u00e9", "a/b", 3, None, 2.5, True, "x"], **types}
    judge = jsonschema.Draft202012Validator(closed(inner))
    values = [
        r'"caf\u00e9"',
        '"café"',
        r'"a\/b"',
        "3",
        "null",
        "2.5",
        "true",
        "4",
        '"y"',
    ]
    for spelled in values:
        text = f'{{"k": {spelled}}}'
        assert allowed(closed(inner), text) is judge.is_valid(json.loads(text)), text
