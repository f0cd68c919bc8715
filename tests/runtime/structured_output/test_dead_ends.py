"""A grammar never leads an answer to a place where no token is allowed, and no key comes twice.
Answers are random walks over the masks; the judge is jsonschema."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from mlcc.api.schema.json_grammar import matched_names, prepared
from mlcc.engine.sampling.grammar import Structure
from mlcc.errors import InvalidRequestError
from mlcc.model.structured_output.grammars import LlGrammars, Matcher, Tag
from mlcc.model.structured_output.llguidance import NativeReader
from tests.helpers.dictated_model import PLAIN_TEMPLATE, scripted
from tests.helpers.service_calls import CHAT, calls_to, chat_body
from tests.runtime.structured_output.test_schemas import END, GRAMMARS, random_answer

INT = {"type": "integer"}
CLOSED: dict[str, Any] = {"type": "object", "additionalProperties": False}
SCORE: dict[str, Any] = {"properties": {"score": INT}, "required": ["score"]}
SOUND: list[dict[str, Any]] = [
    {**CLOSED, **SCORE, "patternProperties": {"^score$": INT}},
    {**CLOSED, "patternProperties": {"^(a|b)$": INT}},
    {**CLOSED, "patternProperties": {"^[ab]$": INT, "^b$|^c$": {"minimum": 3}}},
    {**CLOSED, "properties": {"a": INT, "b": INT}, "patternProperties": {"^[ab]$": INT}},
    {**CLOSED, **SCORE, "patternProperties": {"^score$": {"maximum": 9}, "^x": INT}},
    {**CLOSED, "patternProperties": {"^a$": INT, "^b$": False}},
    {**CLOSED, "required": ["a"], "patternProperties": {"^a$": INT}},
    {**CLOSED, "patternProperties": {"^(a|b|c)$": INT}, "minProperties": 2},
    {**CLOSED, "patternProperties": {"^k[0-3]$": INT}, "maxProperties": 1},
    {**CLOSED, "properties": {"a": INT, "b": INT}, "minProperties": 1},
    {**CLOSED, "properties": {"a": INT, "b": INT, "c": INT}, "required": ["b"],
     "minProperties": 2, "maxProperties": 2},
    {"type": "object", "additionalProperties": {"type": "integer", "minimum": 3, "maximum": 1}},
    {"type": "object", "properties": {"a": INT}, "patternProperties": {"": False}},
    {"type": "array", "items": {**CLOSED, **SCORE, "patternProperties": {"^score$": INT}}},
]  # fmt: skip
TREE = {"type": "object", "properties": {"t": {"$ref": "#"}}, "required": ["t"]}
NONE: list[tuple[dict[str, Any], str]] = [
    ({**CLOSED, "patternProperties": {"^a$": INT}, "minProperties": 2}, "minProperties"),
    ({**CLOSED, **SCORE, "patternProperties": {"^score$": INT}, "minProperties": 2}, "minPropert"),
    ({**CLOSED, "properties": {"a": INT}, "required": ["b"]}, "'b'"),
    ({**CLOSED, "required": ["b"], "patternProperties": {"^a": INT}}, "'b'"),
    ({**CLOSED, "required": ["a"], "patternProperties": {"^a$": False}}, "'a'"),
    (TREE, "ends"),
    ({"type": "array", "items": {"$ref": "#"}, "minItems": 1}, "ends"),
    ({"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"},
     "ends"),
]  # fmt: skip


def no_pair_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    assert len({name for name, _ in pairs}) == len(pairs), pairs
    return dict(pairs)


@pytest.mark.parametrize("schema", SOUND, ids=lambda schema: json.dumps(schema)[:60])
def test_no_answer_runs_into_a_dead_end(schema: dict[str, Any]) -> None:
    ended = 0
    for seed in range(12):
        if (text := random_answer(schema, seed)) is not None:
            ended += 1
            value = json.loads(text, object_pairs_hook=no_pair_twice)
            jsonschema.validate(value, schema, jsonschema.Draft202012Validator)
    assert ended > 6, "most answers must come to their end"


@pytest.mark.parametrize(("schema", "why"), NONE, ids=lambda v: json.dumps(v)[:60])
def test_a_schema_without_a_value_is_refused_with_the_reason(
    schema: dict[str, Any], why: str
) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        GRAMMARS.check(Structure("json_schema", json.dumps(schema), "s"))
    assert why in caught.value.message and caught.value.param == "s"


def test_a_tree_ends() -> None:
    leaf = {"anyOf": [{"$ref": "#"}, {"type": "null"}]}
    GRAMMARS.check(Structure("json_schema", json.dumps({**TREE, "properties": {"t": leaf}})))
    loose = {"type": "object", "properties": {"t": {"$ref": "#"}}}
    GRAMMARS.check(Structure("json_schema", json.dumps(loose)))


@pytest.mark.parametrize(
    "pattern",
    ["^a$", "^(a|bc)$", "^a$|^b$", "^[a-d]x?$", r"^\d$", "^(?:x|y){1,2}$", r"^a\.b$", "^$",
     "a", "^a", "a$", "^a*$", "^a|b$", r"^\w$", "^.$", "(?i)^a$", "^[^a]$", "^(?=a)a$", "("],
)  # fmt: skip
def test_the_names_of_an_expression(pattern: str) -> None:
    """Against Python's own matching of all short texts."""
    names = matched_names(pattern)
    if names is None:
        assert pattern[1:2] != "(" or "?=" in pattern or pattern == "("
        return
    letters = "abcdxy.01Aé"
    texts = ["", *letters, *(a + b for a in letters for b in letters)]
    assert {t for t in texts if re.search(pattern, t)} == set(names) & set(texts)
    assert all(re.fullmatch(pattern, name) for name in names)


@pytest.mark.parametrize("schema", SOUND, ids=lambda schema: json.dumps(schema)[:60])
def test_a_prepared_schema_allows_the_same(schema: dict[str, Any]) -> None:
    kinds = [jsonschema.Draft202012Validator(s) for s in (schema, prepared(schema))]
    names = ["a", "b", "c", "score", "x", "k1", "k2"]
    for first in names:
        for second in names:
            value: Any = {first: 3, second: 10}
            value = [value] if schema["type"] == "array" else value
            assert kinds[0].is_valid(value) == kinds[1].is_valid(value), value


class Unprepared(NativeReader):
    """Reads a schema in which llguidance runs into a dead end."""

    def read(self, tag: Tag, text: str) -> Matcher:
        return super().read(tag, json.dumps(SOUND[0]))


def test_a_dead_end_ends_the_answer_with_the_reason(tmp_path: Path) -> None:
    model = scripted(tmp_path, '{"score": 2, "score": 3}', PLAIN_TEMPLATE)
    size = model.capacity.vocab_size
    text = (tmp_path / "tokenizer.json").read_text()
    grammars = LlGrammars(lambda: Unprepared(text, size, [END]), size)
    model = replace(model, text=replace(model.text, grammars=grammars))
    body = chat_body(CHAT, "hi") | {"guided_json": SOUND[0]}
    with calls_to(model) as calls:
        response = calls.post(CHAT, body)
        events = calls.post(CHAT, {**body, "stream": True}).body
    assert response.status == 400 and response.body["error"]["param"] == "guided_json"
    assert response.body["error"]["code"] == events[-1]["error"]["code"] == "grammar_dead_end"
