"""The filters and tests that a template may use, each charged to the budget.

They are jinja's own where the work can be charged in advance; values are turned into lists or texts
first, so that a filter has done its work when it returns and no lazy iterator escapes the bounds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import wraps
from json import JSONEncoder
from sys import getsizeof
from typing import Any

from jinja2.filters import FILTERS as DEFAULT_FILTERS
from jinja2.runtime import Undefined
from jinja2.tests import TESTS as DEFAULT_TESTS
from jinja2.utils import pass_environment

from mlcc.api.chat_template.budget import BUDGET, STEP, OverBudget
from mlcc.api.chat_template.control_tokens import GUARD
from mlcc.api.chat_template.operations import (
    COMPARISONS,
    Markup,
    OwnList,
    call_text,
    concat,
    joined,
    line_breaks,
    percent,
    sliced,
    text_of,
)

Filter = Callable[..., Any]
_MAX_INDENT = 64
_MAX_PATH = 256
_MAX_DIGITS = 4300
"""Longest number that is read; Python's own limit."""


def _text(value: Any) -> str:
    """The text of a value; text marked by jinja's `safe` stays marked."""
    if isinstance(value, Markup):
        BUDGET.get().spend(STEP + getsizeof(value))
        return value
    return text_of(value)


def _as_method(name: str) -> Filter:
    return lambda value, *args: call_text(_text(value), name, *args)


def _title(value: Any) -> str:
    text = _text(value)
    BUDGET.get().spend(2 * STEP * len(text))  # it is taken apart
    return str(DEFAULT_FILTERS["title"](text))


def _escape(value: Any) -> Any:
    text = _text(value)
    BUDGET.get().text(6 * len(text))
    if isinstance(text, Markup):
        return text
    guard = GUARD.get()
    return Markup(guard.mark(str(DEFAULT_FILTERS["escape"](guard.plain(text)))))


def _safe(value: Any) -> str:
    return Markup(_text(value))


def _truncate(
    value: Any, length: int = 255, killwords: bool = False, end: str = "...", leeway: int = 5
) -> str:
    text = _text(value)
    if length < len(end) or leeway < 0:
        raise ValueError(f"cannot truncate to {length} characters with {end[:20]!r} at the end")
    if len(text) <= length + leeway:
        return text
    kept: str = sliced(text, None, length - len(end), None)
    return concat(kept if killwords else call_text(kept, "rsplit", " ", 1)[0], end)


def _replace(value: Any, old: Any, new: Any, count: int | None = None) -> Any:
    given = (text_of(old), text_of(new), -1 if count is None else count)
    return call_text(text_of(value), "replace", *given)


def _format(value: Any, *args: Any, **kwargs: Any) -> Any:
    return percent(_text(value), kwargs or args)


def _indent(value: Any, width: int | str = 4, first: bool = False, blank: bool = False) -> str:
    text = _text(value)
    check_indent(len(width) if isinstance(width, str) else width)
    lines = line_breaks(text) + 1
    BUDGET.get().text(len(text) + lines * _MAX_INDENT)
    BUDGET.get().spend(2 * STEP * lines)
    return str(DEFAULT_FILTERS["indent"](text, width, first, blank))


def _join(environment: Any, value: Any, d: Any = "", attribute: str | int | None = None) -> str:
    values = BUDGET.get().listed(value)
    if attribute is not None:
        values = list(_map(environment, values, attribute=attribute))
    return joined(text_of(d), [text_of(each) for each in values])


def tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON as transformers renders it: not escaped for HTML, unlike jinja's own filter."""
    budget = BUDGET.get()
    value = budget.listed(value) if isinstance(value, Iterator) else value  # `map` makes one
    size = budget.measure(value)
    wide = check_indent(indent or 0) + check_indent(max(map(len, separators or ("",))))
    budget.text(size * (12 if ensure_ascii else 6) + size // STEP * wide * 16, 1)
    encoder = JSONEncoder(
        ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )
    made = encoder.encode(value)
    return GUARD.get().unescaped(made) if ensure_ascii else made


def check_indent(width: int) -> int:
    """The width, if it is a sane indent."""
    if width > _MAX_INDENT:
        raise OverBudget(f"an indent is wider than {_MAX_INDENT}")
    return width


def _list(value: Any) -> list[Any]:
    return OwnList(BUDGET.get().listed(value))


def _items(value: Any) -> Iterator[tuple[Any, Any]]:
    if isinstance(value, Undefined):
        return iter(())
    if not isinstance(value, Mapping):
        raise TypeError("can only get item pairs from a mapping")
    return iter(BUDGET.get().listed(value.items()))


def _reverse(value: Any) -> Any:
    if isinstance(value, str):
        return sliced(value, None, None, -1)
    return reversed(BUDGET.get().listed(value))


def _round(value: Any, precision: int = 0, method: str = "common") -> Any:
    if abs(precision) > 64:
        raise OverBudget("it rounds to more than 64 digits")
    return DEFAULT_FILTERS["round"](value, precision, method)


def _int(value: Any, default: Any = 0, base: int = 10) -> Any:
    if isinstance(value, str) and len(value) > _MAX_DIGITS:
        return default
    return BUDGET.get().number(DEFAULT_FILTERS["int"](value, default, base))


def _float(value: Any, default: Any = 0.0) -> Any:
    if isinstance(value, str) and len(value) > _MAX_DIGITS:
        return default
    return DEFAULT_FILTERS["float"](value, default)


def _path_steps(attribute: Any) -> int:
    """Number of attribute look-ups in `attribute="a.b,c"`."""
    if not isinstance(attribute, str):
        return 1
    if len(attribute) > _MAX_PATH:
        raise OverBudget(f"it names an attribute of more than {_MAX_PATH} characters")
    return 1 + attribute.count(".") + attribute.count(",")


def _one_by_one(name: str, attribute_at: int | None = None) -> Filter:
    """A jinja filter that handles one value at a time; `attribute_at`: position of `attribute`."""
    function = DEFAULT_FILTERS[name]

    @wraps(function)  # with its mark: it is given the context
    def bounded(context: Any, value: Any, *args: Any, **kwargs: Any) -> Iterator[Any]:
        given = kwargs.get("attribute") if attribute_at is None else args[attribute_at:1]
        path = given[0] if isinstance(given, tuple) and given else given
        # As jinja's own: of nothing, such as tools that are none, there is nothing.
        values = BUDGET.get().listed(value or (), STEP * (2 + _path_steps(path)))
        return iter(list(function(context, values, *args, **kwargs)))

    return bounded


def _ordering(name: str) -> Filter:
    """A jinja filter that compares all values with each other."""
    function = DEFAULT_FILTERS[name]

    @wraps(function)
    def bounded(environment: Any, value: Any, *args: Any, **kwargs: Any) -> Any:
        budget = BUDGET.get()
        steps = max(map(_path_steps, [*args, *kwargs.values()]), default=1)
        values = budget.listed(value, STEP * (2 + steps))
        budget.spend(budget.measure(values) * (2 + len(values).bit_length()))
        made = function(environment, values, *args, **kwargs)
        return iter(list(made)) if isinstance(made, Iterator) else made

    return bounded


def _dictsort(value: Any, *args: Any, **kwargs: Any) -> Any:
    budget = BUDGET.get()
    budget.spend(budget.measure(value) * (2 + len(value).bit_length()))
    return DEFAULT_FILTERS["dictsort"](value, *args, **kwargs)


def _jinjas(table: Mapping[str, Any], names: str) -> dict[str, Filter]:
    """Filters that cost almost nothing."""
    return {name: table[name] for name in names.split()}


_map = _one_by_one("map")
_SAME = "abs count d default first last length"
FILTERS: Mapping[str, Filter] = {
    **_jinjas(DEFAULT_FILTERS, _SAME),
    **{name: _as_method(name) for name in ("capitalize", "lower", "upper")},
    **{name: _ordering(name) for name in ("groupby", "max", "min", "sort", "unique")},
    **{name: _one_by_one(name) for name in ("map", "reject", "select")},
    **{name: _one_by_one(name, 0) for name in ("rejectattr", "selectattr")},
    "dictsort": _dictsort,
    "e": _escape,
    "escape": _escape,
    "float": _float,
    "format": _format,
    "indent": _indent,
    "int": _int,
    "items": _items,
    "join": pass_environment(_join),
    "list": _list,
    "replace": _replace,
    "reverse": _reverse,
    "round": _round,
    "safe": _safe,
    "string": _text,
    "title": _title,
    "tojson": tojson,
    "trim": _as_method("strip"),
    "truncate": _truncate,
}


def _remainder(value: Any, number: Any) -> Any:
    if isinstance(value, str):  # `'%9d' is odd` would be a format
        raise TypeError("a text has no remainder")
    return value % number


_COMPARED = {
    "eq": "== eq equalto", "ne": "!= ne", "lt": "< lt lessthan", "lteq": "<= le",
    "gt": "> gt greaterthan", "gteq": ">= ge", "in": "in",
}  # fmt: skip
_SAME_TESTS = """
    boolean callable defined escaped false float integer iterable mapping none number sameas
    sequence string true undefined
"""
TESTS: Mapping[str, Filter] = {
    **_jinjas(DEFAULT_TESTS, _SAME_TESTS),
    **{name: COMPARISONS[op] for op, names in _COMPARED.items() for name in names.split()},
    "divisibleby": lambda value, num: _remainder(value, num) == 0,
    "even": lambda value: _remainder(value, 2) == 0,
    "odd": lambda value: _remainder(value, 2) == 1,
    "lower": lambda value: text_of(value).islower(),
    "upper": lambda value: text_of(value).isupper(),
}


def listed_pairs(*args: Any, **kwargs: Any) -> dict[str, Any]:
    """`dict(...)` of a template, and the arguments of `namespace(...)`."""
    budget = BUDGET.get()
    for given in args:
        budget.measure(given)
    pairs: Iterable[Any] = args[0] if args else ()
    return dict(pairs, **kwargs)
