"""The vectors as files: parsed strictly, written in one layout. README.md describes the format.

A misspelt key would be an expectation that never fails, so unknown keys are errors.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.e2e.conformance.helpers.matching import Json, rule_of

FOLDER = Path(__file__).with_name("vectors")
WIDTH = 100

_VECTOR = {"name", "why", "only", "alone"}
_STEP = {"request", "expect", "within", "leave"}
_REQUEST = {"method", "path", "headers", "body", "raw", "hex", "chunked"}
_EXPECT = {"status", "headers", "body", "error", "answer", "chunks", "events", "lines"}
_LEAVE = {"events", "seconds", "meanwhile"}


@dataclass(frozen=True)
class Vector:
    """One entry of a file: a request and its answer, or steps of them."""

    id: str
    """topic/name"""
    steps: list[dict[str, Any]]
    only: frozenset[str]
    """The targets that it is for; empty = all."""
    alone: bool
    """The vector must run alone: it reads the engine's counters."""

    @property
    def topic(self) -> str:
        """The name of its file."""
        return self.id.partition("/")[0]

    @property
    def computes(self) -> bool:
        """Whether the model must answer; else it is refused."""
        steps = [one for step in self.steps for one in step.get("together", [step])]
        return any(step["expect"].get("status", 200) < 400 for step in steps)

    def fits(self, target: str) -> bool:
        """Whether the vector applies to a target."""
        return not self.only or target in self.only


def load(folder: Path = FOLDER) -> list[Vector]:
    """All vectors. Raises ValueError naming the vector that is not well formed."""
    vectors = [
        parse(path.stem, entry) for path in sorted(folder.glob("*.json")) for entry in read(path)
    ]
    ids = [vector.id for vector in vectors]
    if twice := {name for name in ids if ids.count(name) > 1}:
        raise ValueError(f"two vectors are named {sorted(twice)[0]}")
    return vectors


def read(path: Path) -> list[dict[str, Any]]:
    """The entries of one file, unparsed."""
    return list(json.loads(path.read_text(encoding="utf-8")))


def parse(topic: str, entry: dict[str, Any]) -> Vector:
    """A vector over its entry, which recording may change in place."""
    name = f"{topic}/{entry.get('name', '?')}"
    several = "steps" in entry
    _keys(name, entry, _VECTOR | ({"steps"} if several else _STEP), {"name", "why"})
    steps = entry["steps"] if several else [entry]
    for step in steps:
        _check_step(name, step, set() if several else _VECTOR)
    only = frozenset(entry.get("only", ()))
    return Vector(name, steps, only, bool(entry.get("alone", False)))


def _check_step(name: str, step: dict[str, Any], around: set[str]) -> None:
    if "together" in step:
        _keys(name, step, {"together"}, {"together"})
        for one in step["together"]:
            _check_step(name, one, set())
        return
    _keys(name, step, _STEP | around, {"request", "expect"})
    _keys(name, step["request"], _REQUEST, {"path"})
    _keys(name, step["expect"], _EXPECT, set())
    leave = step.get("leave", {})
    _keys(name, leave, _LEAVE, set())
    for one in leave.get("meanwhile", ()):
        _check_step(name, one, set())


def _keys(name: str, found: Iterable[str], known: set[str], needed: set[str]) -> None:
    if unknown := set(found) - known:
        raise ValueError(f"{name}: '{min(unknown)}' is none of {sorted(known)}")
    if missing := needed - set(found):
        raise ValueError(f"{name}: '{min(missing)}' is missing")


def expanded(value: Json) -> Json:
    """A request's value with every `{"$repeat": [value, times]}` expanded."""
    if (rule := rule_of(value)) and rule[0] == "$repeat":
        what, times = rule[1]
        return expanded(what) * times
    if isinstance(value, dict):
        return {key: expanded(entry) for key, entry in value.items()}
    return [expanded(entry) for entry in value] if isinstance(value, list) else value


def filled(value: Json, names: dict[str, Json]) -> Json:
    """A request with every `{"$same": name}` replaced by the first value of that name, and every
    `{"$joined": [texts]}` expanded."""
    if (rule := rule_of(value)) and rule[0] == "$same":
        return names[rule[1]]
    if rule and rule[0] == "$joined":
        return "".join(filled(part, names) for part in rule[1])
    if isinstance(value, dict):
        return {key: filled(entry, names) for key, entry in value.items()}
    return [filled(entry, names) for entry in value] if isinstance(value, list) else value


def encoded(value: Json) -> bytes:
    """JSON in UTF-8, unescaped but for halves of surrogate pairs, which have no bytes."""
    return json.dumps(value, ensure_ascii=False).encode("utf-8", errors="backslashreplace")


def layout(entries: list[dict[str, Any]]) -> bytes:
    """The layout of a vector file: values that fit are on one line."""
    text = ",\n".join(_laid_out(entry, 0, top=True) for entry in entries)
    return f"[\n{text}\n]\n".encode("utf-8", errors="backslashreplace")


def _laid_out(value: Json, indent: int, *, top: bool = False, before: int = 0) -> str:
    line = json.dumps(value, ensure_ascii=False)
    fits = indent + before + len(line) < WIDTH
    if not isinstance(value, (dict, list)) or not value or (fits and not top):
        return line
    inner, outer = " " * (indent + 2), " " * indent
    if isinstance(value, list):
        entries = [f"{inner}{_laid_out(entry, indent + 2)}" for entry in value]
        return "[\n" + ",\n".join(entries) + f"\n{outer}]"
    pairs = [
        f"{inner}{(key := json.dumps(name))}: {_laid_out(entry, indent + 2, before=len(key) + 3)}"
        for name, entry in value.items()
    ]
    return "{\n" + ",\n".join(pairs) + f"\n{outer}}}"
