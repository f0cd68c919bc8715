"""Random schemas of objects that several parts describe: what the masks allow is valid for
jsonschema, no answer runs into a dead end, and a value in the order of the schema is allowed."""

from __future__ import annotations

import json
from itertools import permutations
from random import Random
from typing import Any

import jsonschema

from mlcc.engine.sampling.grammar import Structure
from mlcc.errors import MlccError
from tests.runtime.structured_output.test_json_text import allowed
from tests.runtime.structured_output.test_schemas import GRAMMARS, random_answer

NAMES = ["a", "b", "k", "é", "a/b"]
LEAVES: list[Any] = [
    {"type": "integer", "minimum": 2}, {"type": "null"}, {"type": "string", "maxLength": 3}, True,
    {"enum": ["x", "é"]}, {"const": "t"}, {"type": ["integer", "null"]},
    {"type": "string", "pattern": "^[ab]{1,2}$"},
]  # fmt: skip
TAGGED = [
    {"type": "object", "properties": {"t": {"const": tag}}, "required": ["t"]} for tag in "pq"
]
VALUES: list[Any] = [1, 2, 3, None, "x", "é", "t", "a", "ab", True]


class Maker:
    """Makes schemas and values."""

    def __init__(self, seed: int) -> None:
        self.draw = Random(seed)

    def object(self, depth: int) -> dict[str, Any]:
        draw, made = self.draw, dict[str, Any]()
        if draw.random() < 0.85:
            made["type"] = "object"
        if draw.random() < 0.8:
            names = draw.sample(NAMES, draw.randint(1, 3))
            made["properties"] = {name: self.schema(depth - 1) for name in names}
        if draw.random() < 0.5:
            made["required"] = draw.sample(NAMES, draw.randint(1, 2))
        if draw.random() < 0.5:
            made["additionalProperties"] = draw.choice([False, {"type": "integer"}, True])
        if draw.random() < 0.3:
            made["patternProperties"] = {draw.choice(["^a", "^k$", "é"]): draw.choice(LEAVES)}
        if draw.random() < 0.2:
            made |= {"minProperties": 1, "maxProperties": draw.randint(1, 3)}
        return made

    def schema(self, depth: int) -> Any:
        kind = self.draw.choice(
            ["leaf", "leaf", "object", "anyOf", "allOf", "both", "oneOf", "$ref"]
        )
        if depth <= 0 or kind == "leaf":
            return self.draw.choice(LEAVES)
        if kind == "both":
            return {
                **self.object(depth - 1),
                "anyOf": [{"required": ["k"]}, self.object(depth - 1)],
            }
        if kind == "$ref":
            return {"$ref": "#/parts/X", "properties": {"a": self.draw.choice(LEAVES)}}
        parts = {
            "anyOf": [self.schema(depth - 1), self.object(depth - 1)],
            "allOf": [self.object(depth - 1), self.object(depth - 1)],
            "oneOf": TAGGED,
        }
        return {kind: parts[kind]} if kind in parts else self.object(depth - 1)

    def value(self, depth: int) -> Any:
        if depth <= 0 or self.draw.random() < 0.4:
            return self.draw.choice(VALUES)
        names = self.draw.sample([*NAMES, "t", "z"], self.draw.randint(0, 3))
        return {name: self.value(depth - 1) for name in names}


def in_some_order(schema: Any, value: Any) -> bool:
    orders = permutations(value.items()) if isinstance(value, dict) else ()
    return any(allowed(schema, json.dumps(dict(order), ensure_ascii=False)) for order in orders)


def test_random_schemas() -> None:
    answers = refused = 0
    for seed in range(120):
        maker = Maker(seed)
        schema = {**maker.object(3), "parts": {"X": maker.object(1)}}
        if '"#/parts' not in json.dumps(schema):
            del schema["parts"]
        try:
            GRAMMARS.check(Structure("json_schema", json.dumps(schema), "s"))
        except MlccError:
            refused += 1
            continue
        judge = jsonschema.Draft202012Validator(schema)
        if (text := random_answer(schema, seed)) is not None:
            answers += 1
            judge.validate(json.loads(text))
        for value in [maker.value(2) for _ in range(8)]:
            allows = allowed(schema, json.dumps(value, ensure_ascii=False))
            assert not allows or judge.is_valid(value), (schema, value)
            flat = not isinstance(value, dict) or not any(map(_is_object, value.values()))
            if flat and judge.is_valid(value) and not allows:
                assert in_some_order(schema, value), (schema, value)
    assert answers > 60 > refused


def _is_object(value: Any) -> bool:
    return isinstance(value, dict)
