"""Every keyword of JSON Schema: an answer of random allowed tokens is valid according to another
library (jsonschema); unsupported keywords are refused by name."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest

from mlcc.engine.sampling.grammar import Structure
from mlcc.errors import InvalidRequestError, MlccError, UnsupportedError
from mlcc.model.structured_output.llguidance import native_grammars
from mlcc.model.tokenizer.tokenizer import FileTokenizer

pytest.importorskip("llguidance", reason="needs llguidance: pip install mlcc[structured]")

ROOT = Path(__file__).parents[3]
TOKENIZER = ROOT / "examples" / "demo" / "model" / "tokenizer.json"
VOCAB, END = 1280, 3
DATA = json.loads(Path(__file__).with_name("schemas.json").read_text(encoding="utf-8"))
GRAMMARS = native_grammars(lambda: TOKENIZER.read_text(encoding="utf-8"), VOCAB, [END])
TEXT = FileTokenizer(TOKENIZER)
SHORT = {t for t in range(VOCAB) if TEXT.decode([t]) in {*'"}],:0123'}}
"""Tokens that mostly end a value or an object."""
PATIENCE, MOST = 20, 250
"""Tokens after which an answer prefers the tokens of SHORT, and its most tokens."""


def wrapped(schema: Any) -> Iterator[Any]:
    """By itself, and in other schemas, unless it has definitions of its own."""
    yield schema
    if isinstance(schema, dict) and {"$defs", "definitions", "$ref", "$schema"} & schema.keys():
        return
    if isinstance(schema, dict) and "#/" in json.dumps(schema):
        return
    one = {"required": ["k"], "additionalProperties": False}
    yield {"type": "object", "properties": {"k": schema}, **one}
    yield {"type": "array", "items": schema, "minItems": 1, "maxItems": 2}
    yield {"anyOf": [schema, {"type": "array", "items": False}]}
    yield {"$defs": {"it": schema}, "type": "array", "prefixItems": [{"$ref": "#/$defs/it"}],
           "minItems": 1, "items": False}  # fmt: skip


def allowed_tokens(words: Sequence[int]) -> list[int]:
    """The tokens whose bits are set in a mask."""
    mask = np.asarray(words, dtype=np.int64).astype(np.uint32).view(np.uint8)
    allowed: list[int] = np.flatnonzero(np.unpackbits(mask, bitorder="little")[:VOCAB]).tolist()
    return allowed


def random_answer(schema: Any, seed: int) -> str | None:
    """A random answer; None if it did not come to its end."""
    grammar = GRAMMARS.open(Structure("json_schema", json.dumps(schema), "s"))
    draw, ids = random.Random(seed), []
    while not grammar.ended:
        words = grammar.allowed()
        able = allowed_tokens(words)
        assert able and not grammar.failed, schema
        if END in able and (len(ids) > PATIENCE or draw.random() < 0.5 or able == [END]):
            break
        if END in able:
            able.remove(END)
        short = sorted(SHORT.intersection(able))
        hurry = short and draw.random() < (0.9 if len(ids) > PATIENCE else 0.3)
        ids.append(draw.choice(short if hurry else able))
        grammar.accept(ids[-1])
        for token in grammar.forced():
            ids.append(token)
            grammar.accept(token)
        if len(ids) > MOST:
            return None
    return TEXT.decode(ids)


@pytest.mark.parametrize("keyword", DATA["held"])
def test_answers_are_what_the_schema_says(keyword: str) -> None:
    schemas = [w for schema in DATA["held"][keyword] for w in wrapped(schema)]
    ended = 0
    for number, schema in enumerate(schemas):
        kind = jsonschema.validators.validator_for(schema, jsonschema.Draft202012Validator)
        judge = kind(schema, format_checker=kind.FORMAT_CHECKER)
        for seed in range(2):
            text = random_answer(schema, 1000 * number + seed)
            if text is not None:
                ended += 1
                judge.validate(json.loads(text))
    assert ended > len(schemas), "most answers must come to their end"


@pytest.mark.parametrize("keyword", DATA["refused"])
def test_what_cannot_be_held_to_is_refused_by_name(keyword: str) -> None:
    for schema in (DATA["refused"][keyword], {"properties": {"a": DATA["refused"][keyword]}}):
        with pytest.raises(UnsupportedError) as caught:
            GRAMMARS.check(Structure("json_schema", json.dumps(schema), "guided_json"))
        assert repr(keyword) in caught.value.message and caught.value.param == "guided_json"


DEAD = ["#/nowhere", "#/$defs/b", "#/components/schemas/X", "#/items/0", "#/required/0",
        "#/$defs/a/", "#/properties/01", "#/title"]  # fmt: skip


@pytest.mark.parametrize("ref", DEAD)
def test_a_pointer_that_leads_nowhere_is_refused_by_name(ref: str) -> None:
    schema = {
        "$defs": {"a": {}},
        "required": ["a"],
        "title": "t",
        "properties": {"a": {"$ref": ref}},
    }
    with pytest.raises(InvalidRequestError) as caught:
        GRAMMARS.check(Structure("json_schema", json.dumps(schema), "guided_json"))
    assert repr(ref) in caught.value.message and "#/properties/a" in caught.value.message


def test_a_keyword_in_a_target_of_a_pointer_is_refused_where_it_was_written() -> None:
    pet = {"type": "object", "not": {}}
    schema = {"$ref": "#/components/schemas/Pet", "components": {"schemas": {"Pet": pet}}}
    with pytest.raises(UnsupportedError, match="'not' at #/components/schemas/Pet,"):
        GRAMMARS.check(Structure("json_schema", json.dumps(schema), "guided_json"))
    unused = {"type": "object", "components": {"schemas": {"Pet": pet}}}
    with pytest.raises(UnsupportedError, match="'components' at #,"):
        GRAMMARS.check(Structure("json_schema", json.dumps(unused), "guided_json"))


def test_words_that_are_data_are_no_keywords() -> None:
    """A property, a constant or an example may be called as a keyword is."""
    names = {"properties": {"not": {"const": {"uniqueItems": 1}}}, "examples": [{"if": 1}]}
    GRAMMARS.check(Structure("json_schema", json.dumps(names)))


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("json_schema", '{"type": "objec"}'),
        ("json_schema", '{"$ref": "#/nowhere"}'),
        ("json_schema", '{"$ref": "https://example.com/other"}'),
        ("json_schema", '{"properties": 3}'),
        ("json_schema", '{"items": 3}'),
        ("json_schema", "[1]"),
        ("json_schema", "{"),
        ("json_schema", '{"format": "nonsense", "type": "string"}'),
        ("json_schema", '{"type": "integer", "minimum": 5, "maximum": 1}'),
        ("json_schema", '{"enum": []}'),
        ("json_schema", '{"oneOf": [{"const": 1}, {"type": "integer"}]}'),
        ("json_schema", "false"),
        ("regex", "(a"),
        ("regex", r"(a)\1"),
        ("regex", "a(?=b)"),
        ("grammar", "root ::= nothing"),
        ("grammar", "root = 1"),
        ("grammar", "start: nothing"),
        ("grammar", ""),
    ],
)
def test_what_is_no_structure_is_refused(kind: Any, text: str) -> None:
    with pytest.raises(MlccError) as caught:
        GRAMMARS.check(Structure(kind, text, "field"))
    assert isinstance(caught.value, (InvalidRequestError, UnsupportedError))
    assert "'field'" in caught.value.message and caught.value.param == "field"
