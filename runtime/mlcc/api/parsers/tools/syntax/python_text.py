"""Calls in Python's syntax, `f(a=1, b="x")`: parsed, never executed."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from typing import Any

from mlcc.api.parsers.tools.base import Call, Tools
from mlcc.api.parsers.tools.syntax.json_text import written
from mlcc.api.parsers.tools.syntax.lark import Lark, literal

_MARK = re.compile(
    r'"[^"\\]*(?:\\.[^"\\]*)*("?)' r"|'[^'\\]*(?:\\.[^'\\]*)*('?)" r"|[()\[\]{}]", re.DOTALL
)
"""A string, with its closing quote if there is one, or a bracket."""
_WORDS = {"true": True, "false": False, "null": None}
"""JSON's literals, which models mix with Python's."""
MOST = 100_000
"""Most characters of calls."""


def python_end(text: str, start: int = 0) -> int | None:
    """End of the first bracket after `start`; None = it is incomplete."""
    depth = 0
    for found in _MARK.finditer(text, start):
        mark = found[0]
        if mark[0] in "'\"":
            if not (found[1] or found[2]):  # a string that is not complete
                return None
        elif mark in "([{":
            depth += 1
        else:
            depth -= 1
            if depth <= 0:
                return found.end()
    return None


def python_calls(text: str, tools: Tools) -> tuple[Call, ...]:
    """The calls of an expression, one or a list; empty if any entry is not a call."""
    if len(text) > MOST:
        return ()
    try:
        tree = ast.parse(text.strip(), mode="eval").body
        nodes = tree.elts if isinstance(tree, (ast.List, ast.Tuple)) else [tree]
        return tuple(_call(node, tools) for node in nodes)
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        return ()


def _call(node: ast.AST, tools: Tools) -> Call:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print":
        (node,) = node.args  # Gemma was trained to print the result of a call
    if not isinstance(node, ast.Call):
        raise ValueError("no call")
    name = ast.unparse(node.func).removesuffix(".call")  # Llama's own tools have it
    names = [*tools.get(name, {}).get("properties", {})]
    if len(node.args) > len(names):
        raise ValueError("more arguments than there are")
    given = {names[i]: _value(value) for i, value in enumerate(node.args)}
    for word in node.keywords:
        if word.arg is None or word.arg in given:
            raise ValueError("no plain argument")
        given[word.arg] = _value(word.value)
    return Call(name, written(given))


def _value(node: ast.AST) -> Any:
    if isinstance(node, ast.Name) and node.id in _WORDS:
        return _WORDS[node.id]
    if isinstance(node, (ast.List, ast.Tuple)):
        return [_value(entry) for entry in node.elts]
    if isinstance(node, ast.Dict):
        return {str(_value(key)): _value(value)
                for key, value in zip(node.keys, node.values, strict=True) if key}  # fmt: skip
    value = ast.literal_eval(node)
    if not isinstance(value, (str, int, float, bool, type(None))):
        raise ValueError("no value of JSON")
    return value


def python_body(name: str, parameters: Mapping[str, Any], lark: Lark) -> str:
    """A Lark expression for one call: arguments by name, as JSON."""
    needed = parameters.get("required", ())
    items = [
        (f"{literal(f'{key}=')} {lark.python_json(schema_of(parameters, key))}", key in needed)
        for key in parameters.get("properties", {})
    ]
    return f"{literal(f'{name}(')} {lark.chain(items, ', ')} {literal(')')}"


def schema_of(parameters: Mapping[str, Any], key: str) -> dict[str, Any]:
    """The schema of one argument, with the definitions that it may refer to."""
    schema = parameters["properties"][key]
    found = dict(schema) if isinstance(schema, Mapping) else {}
    shared = {word: parameters[word] for word in ("$defs", "definitions") if word in parameters}
    return {**found, **shared}
