"""The methods of strings, lists and dicts that a template may call, each with its price.

The list is what a template can reach; a method without a price is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from sys import getsizeof
from typing import Any

from jinja2.exceptions import SecurityError
from jinja2.sandbox import SandboxedEscapeFormatter, SandboxedFormatter

from mlcc.api.chat_template.budget import BUDGET, SLOT, STEP, Budget
from mlcc.api.chat_template.control_tokens import GUARD, aligned
from mlcc.api.chat_template.operations import Markup, joined, key, search_price, text_of, width

_BREAKS = "\n\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"
_CASE = 12
"""Bytes a character: case mapping makes up to three of one, in four bytes each."""
_PIECE = STEP + SLOT

Price = Callable[..., int]


def _same(text: str, *args: Any) -> int:
    return getsizeof(text)


def _case(text: str, *args: Any) -> int:
    return len(text) * (1 if text.isascii() else _CASE)


def _look(text: str, *args: Any) -> int:
    return len(text)


def _search(text: str, sought: Any = "", *args: Any) -> int:
    return search_price(text, sought)


def _ends(text: str, sought: Any, *args: Any) -> int:
    return sum(map(len, sought)) if isinstance(sought, tuple) else len(sought)


def _strip(text: str, chars: Any = None) -> int:
    return getsizeof(text) + search_price(text, chars)


def _partition(text: str, sought: Any) -> int:
    return getsizeof(text) + search_price(text, sought) + 3 * _PIECE


def _split(text: str, sep: Any = None, maxsplit: int = -1) -> int:
    BUDGET.get().spend(search_price(text, sep))
    pieces = 1 + (text.count(sep) if sep else len(text) // 2)
    return getsizeof(text) + _PIECE * (pieces if maxsplit < 0 else min(pieces, maxsplit + 1))


def _splitlines(text: str, *args: Any) -> int:
    return getsizeof(text) + _PIECE * (1 + line_breaks(text))


def _replace(text: str, old: Any, new: Any, count: int = -1) -> int:
    budget = BUDGET.get()
    budget.spend(search_price(text, old))
    found = text.count(old)
    grown = 6 if isinstance(text, Markup) else 1
    length = len(text) + (found if count < 0 else min(found, count)) * len(new) * grown
    budget.text(length, 1 if text.isascii() and new.isascii() else 4)
    return 0


_LOOKED_FOR: Mapping[str, Price] = {
    "count": _search, "find": _search, "index": _search, "rfind": _search, "rindex": _search,
    "startswith": _ends, "endswith": _ends, "removeprefix": _same, "removesuffix": _same,
    "partition": _partition, "rpartition": _partition, "split": _split, "rsplit": _split,
    "replace": _replace, "strip": _strip, "lstrip": _strip, "rstrip": _strip,
}  # fmt: skip
"""Methods whose first argument is looked for in the text."""
_OF_ITSELF: Mapping[str, Price] = {
    **dict.fromkeys(("capitalize", "casefold", "lower", "swapcase", "title", "upper"), _case),
    **dict.fromkeys(("isalnum", "isalpha", "isascii", "isdecimal", "isdigit"), _look),
    **dict.fromkeys(("islower", "isnumeric", "isspace", "istitle", "isupper"), _look),
    "splitlines": _splitlines,
}
STRING_METHODS = frozenset([*_LOOKED_FOR, *_OF_ITSELF, "join", "format", "format_map"])
METHODS: Mapping[type, frozenset[str]] = {
    str: STRING_METHODS,
    dict: frozenset(["get", "items", "keys", "values"]),
    list: frozenset(["count", "index"]),
    tuple: frozenset(["count", "index"]),
}


def call_method(owner: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`owner.name(*args, **kwargs)`. Raises OverBudget or SecurityError."""
    if isinstance(owner, str):
        return call_text(owner, name, *args, **kwargs)
    if not any(isinstance(owner, kind) and name in METHODS[kind] for kind in (dict, list, tuple)):
        raise SecurityError(f"{name!r} of a {type(owner).__name__} is not safe")
    if isinstance(owner, dict):
        args = tuple(map(key, args))
    else:
        BUDGET.get().measure(args)
        BUDGET.get().measure(owner)
    return getattr(owner, name)(*args, **kwargs)


def call_text(text: str, name: str, *args: Any, **kwargs: Any) -> Any:
    """`text.name(*args, **kwargs)`."""
    budget = BUDGET.get()
    if name == "join":
        return joined(text, *args, **kwargs)
    args += tuple(kwargs.pop(each) for each in ("sep", "maxsplit", "keepends") if each in kwargs)
    if kwargs:
        raise TypeError(f"{name} takes no argument {next(iter(kwargs))!r} here")
    method = getattr(type(text), name)
    if name in _OF_ITSELF:
        budget.spend(STEP + _OF_ITSELF[name](text, *args))
        return method(GUARD.get().plain(text) if name == "isascii" else text, *args)
    if name not in _LOOKED_FOR:
        raise SecurityError(f"{name!r} of a text is not safe")
    budget.spend(STEP + _LOOKED_FOR[name](text, *args))
    return aligned(method, text, *args) if args else method(text)


def line_breaks(text: str) -> int:
    """How many there may be for `splitlines`."""
    BUDGET.get().spend(len(text))
    return sum(text.count(mark) for mark in (_BREAKS[:7] if text.isascii() else _BREAKS))


class BoundFormat:
    """`text.format`, or `text.format_map`, of a template."""

    def __init__(self, environment: Any, text: str, is_map: bool) -> None:
        more: dict[str, Any] = {}
        if escape := getattr(text, "escape", None):  # jinja's Markup
            more["escape"] = escape
        self._formatter = (_EscapingFormatter if escape else _Formatter)(environment, **more)
        self._text, self._is_map = text, is_map

    def __call__(self, *args: Any, **kwargs: Any) -> str:
        BUDGET.get().spend(STEP + 16 * len(self._text))
        if self._is_map:
            (kwargs,) = args
            args = ()
        return type(self._text)(self._formatter.vformat(self._text, args, kwargs))


class _Formatter(SandboxedFormatter):
    def format_field(self, value: Any, format_spec: str) -> Any:
        width(BUDGET.get(), format_spec)
        return super().format_field(_readable(BUDGET.get(), value), format_spec)

    def convert_field(self, value: Any, conversion: Any) -> Any:
        if conversion is None:
            return value
        budget = BUDGET.get()
        budget.spend(10 * budget.measure(value))
        return GUARD.get().unescaped(super().convert_field(value, conversion))


class _EscapingFormatter(_Formatter, SandboxedEscapeFormatter):
    def format_field(self, value: Any, format_spec: str) -> Any:
        BUDGET.get().spend(5 * len(value) if isinstance(value, str) else 0)
        return super().format_field(value, format_spec)


def _readable(budget: Budget, value: Any) -> Any:
    """Numbers keep their type, for their format; the rest is text."""
    budget.spend(STEP)
    if isinstance(value, (int, float)):
        return value
    return value if isinstance(value, Markup) else text_of(value)
