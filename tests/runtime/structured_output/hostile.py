"""Hostile schemas, expressions and grammars: deep, huge, endless, exponential."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from mlcc.engine.sampling.grammar import Structure


def hostile() -> Iterator[tuple[str, Structure]]:
    """(name, grammar) of each hostile grammar."""
    for name, schema in _schemas():
        yield name, Structure("json_schema", json.dumps(schema), "field")
    for name, text in _expressions():
        yield name, Structure("regex", text, "field")
    for name, text in _grammars():
        yield name, Structure("grammar", text, "field")
    yield "many choices", Structure("choice", json.dumps([f"c{i}" * 3 for i in range(4096)]), "f")


def _schemas() -> Iterator[tuple[str, Any]]:
    deep: Any = {"type": "null"}
    for _ in range(100):
        deep = {"type": "array", "items": deep}
    yield "deep", deep
    chain = {f"d{i}": {"$ref": f"#/$defs/d{i + 1}"} for i in range(2000)}
    yield "a chain of references", {"$defs": {**chain, "d2000": {}}, "$ref": "#/$defs/d0"}
    arrays = {
        f"d{i}": {"type": "array", "items": {"$ref": f"#/$defs/d{i + 1}"}} for i in range(2000)
    }
    yield "a chain of arrays", {"$defs": {**arrays, "d2000": {}}, "$ref": "#/$defs/d0"}
    yield "itself", {"$ref": "#"}
    parts = {f"d{i}": {"$ref": f"#/components/d{i + 1}"} for i in range(2000)}
    yield "a chain of pointers", {"components": {**parts, "d2000": {}}, "$ref": "#/components/d0"}
    places = ["#/properties/a" + "/properties/a" * i for i in range(60)]
    inner: Any = {"anyOf": [{"$ref": place} for place in places]}
    for _ in range(60):
        inner = {"type": "object", "properties": {"a": inner}}
    yield "pointers into each other", inner
    both_ways = {"a": {"$ref": "#/properties/b"}, "b": {"$ref": "#/properties/a"}}
    yield "each other", {"type": "object", "properties": both_ways, "required": ["a"]}
    yield (
        "itself by way of all",
        {"$defs": {"a": {"allOf": [{"$ref": "#/$defs/a"}]}}, "$ref": "#/$defs/a"},
    )
    yield "never ends", {"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]}
    pairs = [{"anyOf": [{"minLength": i}, {"maxLength": 100 - i}]} for i in range(20)]
    yield "2 to the 20", {"type": "string", "allOf": pairs}
    objects = [
        {"anyOf": [{"properties": {f"a{i}": {"const": j}}} for j in range(4)]} for i in range(12)
    ]
    yield "4 to the 12", {"type": "object", "allOf": objects}
    double = {f"d{i}": {"anyOf": [{"$ref": f"#/$defs/d{i + 1}"}] * 2} for i in range(40)}
    yield (
        "twice as many each time",
        {"$defs": {**double, "d40": {"const": 1}}, "$ref": "#/$defs/d0"},
    )
    both = {f"d{i}": {"allOf": [{"$ref": f"#/$defs/d{i + 1}"}] * 2} for i in range(40)}
    yield "all of it twice", {"$defs": {**both, "d40": {"minimum": 1}}, "$ref": "#/$defs/d0"}
    two = ({"prefixItems": [{"$ref": f"#/$defs/d{i + 1}"}] * 2, "minItems": 2} for i in range(40))
    tuples = {f"d{i}": {"type": "array", **pair} for i, pair in enumerate(two)}
    yield (
        "an answer that is too long",
        {"$defs": {**tuples, "d40": {"const": 1}}, "$ref": "#/$defs/d0"},
    )
    yield "many items", {"type": "array", "items": {"type": "integer"}, "minItems": 10**9}
    nested: Any = {"type": "null"}
    for _ in range(6):
        nested = {"type": "array", "items": nested, "minItems": 50, "maxItems": 60}
    yield "many items of many", nested
    yield "a long text", {"type": "string", "minLength": 10**8}
    yield "a bounded text", {"type": "string", "maxLength": 10**6}
    yield "big numbers", {"type": "integer", "minimum": -(10**300), "maximum": 10**300}
    yield "small steps", {"type": "number", "multipleOf": 1e-300}
    yield (
        "steps that do not meet",
        {"type": "integer", "allOf": [{"multipleOf": p} for p in (9973, 9967, 9949, 9941, 9931)]},
    )
    yield (
        "many properties",
        {"type": "object", "properties": {f"p{i}": {"type": "string"} for i in range(4000)}},
    )
    yield "many required", {"type": "object", "required": [f"p{i}" for i in range(4000)]}
    yield "many values", {"enum": [f"value {i} " * 3 for i in range(3000)]}
    yield (
        "one of many",
        {
            "oneOf": [
                {"type": "object", "properties": {"k": {"const": i}}, "required": ["k"]}
                for i in range(600)
            ]
        },
    )
    yield (
        "patterns that explode",
        {"type": "string", "allOf": [{"pattern": f".*{c}.{{24}}$"} for c in "abcd"]},
    )
    yield (
        "many patterns",
        {"type": "object", "patternProperties": {f"a{{{i}}}b*{i}.*c": {} for i in range(300)}},
    )
    yield "too long", {"description": "x" * 200_000}


def _expressions() -> Iterator[tuple[str, str]]:
    yield "repeats of repeats", "((((a{1,99}){1,99}){1,99}){1,99}){1,99}"
    yield "states that explode", "(a|b)*a(a|b){40}"
    yield "many of any", "(.*,){60}x"
    yield "backtracking", "(a+)+(a+)+(a+)+b"
    yield "a million", "x{1000000}"
    yield "groups", "(" * 3000 + "a" + ")" * 3000
    yield "classes", r"(\w\W\pL\PN){200}"
    yield "alternatives", "|".join(f"{i}x*y{i}" for i in range(8000))


def _grammars() -> Iterator[tuple[str, str]]:
    yield "left recursion", 'root ::= root "a" | root root | "b"'
    yield "nothing but itself", "root ::= root"
    yield "brackets", "root ::= " + "(" * 2000 + '"a"' + ")" * 2000
    yield "ambiguous", 'root ::= x x x x x x x x\nx ::= "a"* x* | "a" x'
    rules = "\n".join(f"r{i} ::= r{i + 1} r{i + 1}" for i in range(60))
    yield "doubling", f'root ::= r0\n{rules}\nr60 ::= "a"'
    yield "many repeats", 'root ::= ((("a"{1,900}){1,900}){1,900}){1,900}'
    yield (
        "many rules",
        "root ::= r0\n"
        + "\n".join(f'r{i} ::= "{i}" r{i + 1}?' for i in range(3000))
        + '\nr3000 ::= "z"',
    )
