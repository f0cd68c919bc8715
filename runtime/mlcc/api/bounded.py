"""Template filters, operators and methods that are charged *before* they make much from little.

Everything else is charged afterwards by `sandbox.py`, which is safe because its result is no larger
than what was put in.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from json import JSONEncoder
from typing import Any

from mlcc.api.budget import BUDGET, OverBudget

_MAX_INDENT = 64
_WIDE_PERCENT = re.compile(r"%[^a-zA-Z%]*(\d{4,}|\*)")
_WIDE_BRACES = re.compile(r"\{[^{}]*(\d{4,}|\{)")


def concat(parts: list[Any]) -> str:
    """`a ~ b`: the texts of the parts, joined."""
    return join_texts("", (str(BUDGET.get().charge(part)) for part in parts))


def join(values: Iterable[Any], d: Any = "", attribute: str | int | None = None) -> str:
    """jinja's `join`."""
    if attribute is not None:
        values = (value[attribute] for value in values)
    return join_texts(str(d), (str(BUDGET.get().charge(value)) for value in values))


def join_texts(separator: str, values: Iterable[str]) -> str:
    """`separator.join(values)`."""
    budget, texts = BUDGET.get(), []
    for value in values:
        budget.product(len(value) + len(separator), 1)
        texts.append(value)
    return separator.join(texts)


def replace(text: Any, old: Any, new: Any, count: int | None = None) -> str:
    """jinja's and Python's `replace`."""
    text, old, new = str(text), str(old), str(new)
    found = text.count(old)
    limit = -1 if count is None else count
    budget = BUDGET.get()
    budget.product(len(text), 1)
    budget.product(len(new), found if limit < 0 else min(found, limit))
    return str(text.replace(old, new, limit))


def indent(function: Callable[..., str]) -> Callable[..., str]:
    """jinja's `indent`, charged for the indents of all lines."""

    @wraps(function)
    def bounded(s: Any, width: int | str = 4, *args: Any, **kwargs: Any) -> str:
        wide = check_indent(len(width) if isinstance(width, str) else width)
        BUDGET.get().product(wide, str(s).count("\n") + 1)
        return function(s, width, *args, **kwargs)

    return bounded


def tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """As transformers has it: not escaped for HTML, which jinja's own would do."""
    BUDGET.get().measure(value)
    check_indent(indent or 0)
    check_indent(max(map(len, separators or ("",))))
    encoder = JSONEncoder(
        ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )
    return join_texts("", encoder.iterencode(value))


def format_percent(text: Any, *args: Any, **kwargs: Any) -> Any:
    """jinja's `format`, which is printf's."""
    return _percent(str(text), kwargs or args)


def format_braces(text: str, wrapped: Callable[..., str]) -> Callable[..., str]:
    """`text.format`, if its format string asks for nothing wide."""
    plain = text.replace("{{", "").replace("}}", "")
    if _WIDE_BRACES.search(plain):
        raise OverBudget("a format string asks for a width of 1000 or more, or a computed one")

    def bounded(*args: Any, **kwargs: Any) -> str:
        budget = BUDGET.get()
        budget.product(budget.measure((args, kwargs)), plain.count("{"))
        return wrapped(*args, **kwargs)

    return bounded


def check_indent(width: int) -> int:
    """The width, if it is a sane indent."""
    if width > _MAX_INDENT:
        raise OverBudget(f"an indent is wider than {_MAX_INDENT}")
    return width


def _times(left: Any, right: Any) -> Any:
    for sized, count in ((left, right), (right, left)):
        if isinstance(sized, (str, bytes, list, tuple)) and isinstance(count, int):
            BUDGET.get().product(len(sized), count)
    return left * right


def _power(left: Any, right: Any) -> Any:
    if isinstance(left, int) and isinstance(right, int) and left.bit_length() * right > 4096:
        raise OverBudget("it makes a huge number")
    return left**right


def _percent(left: Any, right: Any) -> Any:
    if isinstance(left, str):
        if _WIDE_PERCENT.search(left):
            raise OverBudget("a format string asks for a width of 1000 or more, or a computed one")
        budget = BUDGET.get()
        size = budget.measure(right)
        budget.product(size, left.count("%") if isinstance(right, Mapping) else 1)
    return left % right


OPERATORS: Mapping[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "*": _times,
    "**": _power,
    "%": _percent,
}
"""The operators that can make much from little."""
