"""Jinja's operators and the methods of strings, lists and dicts, each charged before it runs.

`sandbox.py` rewrites a template's `a[1:]`, `a in b`, `a ~ b` ... to calls of these functions.
`METHODS` is all that a template can call; a method without a price is refused. Filters and tests
are in `filters.py`.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Mapping
from sys import getsizeof
from typing import Any

from jinja2.exceptions import SecurityError
from jinja2.filters import do_mark_safe
from jinja2.runtime import Context, Undefined
from jinja2.sandbox import SandboxedEscapeFormatter, SandboxedFormatter

from mlcc.api.chat_template.budget import BUDGET, SLOT, STEP, Budget, OverBudget
from mlcc.api.chat_template.control_tokens import GUARD, aligned

Markup: type[str] = type(do_mark_safe(""))
"""Text that jinja's `safe` marked; text joined to it is escaped."""
_REPR = 10
"""Factor for repr: a character may become `\\U0001f600`."""
_ESCAPED = 6
"""Factor for escaping: a character may become `&#34;`."""
_LONG_KEY = 1000
_KEY = re.compile(r"%\([^()]*\)")
_WIDTH = re.compile(r"%[#0\- +]*(\d*)(?:\.(\d*))?")
_STARRED = re.compile(r"%[#0\- +]*\d*(?:\.\d*)?\*|%[#0\- +]*\d*\.\*")
_DIGITS = re.compile(r"\d+")


class OwnList(list[Any]):
    """A list that the template itself made, the only kind that it may change."""


OwnList.__name__ = "list"  # as errors call it


def text_of(value: Any) -> str:
    """`str(value)`."""
    budget = BUDGET.get()
    if isinstance(value, str):
        budget.spend(STEP + 4 * len(value))  # one wide character makes all of them wide
        return str(value)
    if isinstance(value, (int, float, Undefined)) or value is None:
        budget.spend(STEP)
        return str(value)
    budget.spend(_REPR * budget.measure(value))
    return GUARD.get().unescaped(str(value))


def written(context: Context, value: Any) -> str:
    """`{{ value }}`."""
    return text_of(value)


def concat(*parts: Any) -> str:
    """`a ~ b`."""
    return "".join([text_of(part) for part in parts])


def made(value: Any) -> Any:
    """A list, tuple or dict as the template writes it: a few entries, charged by their number."""
    BUDGET.get().spend(STEP + 2 * STEP * len(value))
    return OwnList(value) if isinstance(value, list) else value


def key(value: Any) -> Any:
    """A key of a dict or an index: its hash is charged for."""
    if not isinstance(value, (str, int, float)):
        BUDGET.get().measure(value)
    elif isinstance(value, str) and len(value) > _LONG_KEY:
        BUDGET.get().text(len(value), 3 * _REPR)  # for the text of a KeyError
    return value


def spread(values: Any) -> Any:
    """`*values` and `**values` in a call."""
    budget = BUDGET.get()
    if isinstance(values, Mapping):
        budget.spend(STEP + 2 * STEP * len(values))
        return values
    return budget.listed(values)


def entered(weight: int) -> str:
    """Charge for entering the body of a macro or loop; `weight` = its length."""
    BUDGET.get().spend(weight)
    return ""


def looped(values: Any, weight: int) -> Any:
    """The values of a loop, charged in advance where their number is known."""
    budget = BUDGET.get()
    if isinstance(values, Undefined):
        return values
    try:
        budget.spend(STEP + len(values) * weight)
    except TypeError:
        return budget.counted(values, weight)
    return values


def sliced(value: Any, start: Any, stop: Any, step: Any) -> Any:
    """`value[start:stop:step]`."""
    if isinstance(value, (str, list, tuple)):
        length = len(range(*slice(start, stop, step).indices(len(value))))
        width = SLOT if not isinstance(value, str) else 1 if value.isascii() else 4
        BUDGET.get().spend(STEP + length * width)
    elif not isinstance(value, (Undefined, range)):
        raise TypeError(f"a {type(value).__name__} cannot be sliced")
    found = value[start:stop:step]
    return OwnList(found) if isinstance(found, list) else found


def search_price(text: str, sought: Any) -> int:
    """Price of a search in a text; in the worst case every position is compared in full."""
    return STEP + len(text) * (1 + (len(sought) // 4 if isinstance(sought, str) else 0))


def contains(left: Any, right: Any) -> bool:
    """`left in right`."""
    budget = BUDGET.get()
    if isinstance(right, str):
        budget.spend(search_price(right, left))
        if isinstance(left, str):
            return bool(aligned(operator.contains, right, left))
    elif isinstance(right, Mapping):
        key(left)
    elif isinstance(right, (list, tuple)) and isinstance(left, str):
        budget.spend(STEP + len(right) * (STEP + len(left) // 4))
        return any(isinstance(entry, str) and _equal(left, entry) for entry in right)
    elif isinstance(right, range) and isinstance(left, int):
        pass
    else:
        budget.measure(left)
        right = budget.listed(right)
        budget.measure(right)
    return left in right


def _equal(left: Any, right: Any) -> Any:
    if isinstance(left, str) and isinstance(right, str):
        return aligned(operator.eq, left, right)
    return left == right


def _ordered(compare: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def priced(left: Any, right: Any) -> Any:
        budget = BUDGET.get()
        if isinstance(left, str) and isinstance(right, str):
            budget.spend(STEP + min(len(left), len(right)) // 4)
            return aligned(compare, left, right)
        if not isinstance(left, _SIMPLE) and not isinstance(right, _SIMPLE):
            budget.measure(left)
            budget.measure(right)
        return compare(left, right)

    return priced


_SIMPLE = (str, int, float, Undefined, type(None))
COMPARISONS: Mapping[str, Callable[[Any, Any], Any]] = {
    "eq": _ordered(operator.eq),
    "ne": _ordered(operator.ne),
    "lt": _ordered(operator.lt),
    "lteq": _ordered(operator.le),
    "gt": _ordered(operator.gt),
    "gteq": _ordered(operator.ge),
    "in": contains,
    "notin": lambda left, right: not contains(left, right),
}
"""Comparisons by jinja's names."""


def compared(first: Any, *rest: Any) -> Any:
    """`a < b < c`, given as a, "lt", b, "lt", c."""
    result: Any = True
    for name, value in zip(rest[::2], rest[1::2], strict=True):
        result = COMPARISONS[name](first, value)
        if not result:
            break
        first = value
    return result


def _plus(left: Any, right: Any) -> Any:
    budget = BUDGET.get()
    if isinstance(left, str) and isinstance(right, str):
        grown = _ESCAPED if isinstance(left, Markup) or isinstance(right, Markup) else 1
        width = 1 if left.isascii() and right.isascii() else 4
        budget.text((len(left) + len(right)) * grown, width)
        return left + right
    if isinstance(left, (list, tuple)) and isinstance(right, (list, tuple)):
        budget.spend(STEP + SLOT * (len(left) + len(right)))
        found = left + right  # type: ignore[operator]
        return OwnList(found) if isinstance(found, list) else found
    return budget.number(left + right)


def _times(left: Any, right: Any) -> Any:
    for sized, count in ((left, right), (right, left)):
        if isinstance(sized, (str, list, tuple)) and isinstance(count, int):
            width = 4 if isinstance(sized, str) else SLOT
            BUDGET.get().text(len(sized) * max(0, count), width)
            return left * right
    return BUDGET.get().number(left * right)


def _power(left: Any, right: Any) -> Any:
    if isinstance(left, int) and isinstance(right, int) and left.bit_length() * right > 4096:
        raise OverBudget("it makes a huge number")
    return BUDGET.get().number(left**right)


def percent(left: Any, right: Any) -> Any:
    """`left % right`: a remainder, or printf's format."""
    if not isinstance(left, str):
        return left % right
    budget = BUDGET.get()
    budget.spend(search_price(left, ""))
    plain = _KEY.sub("%", left)
    if "%(" in plain or _STARRED.search(plain):
        raise OverBudget("a format string has a computed width or nested parentheses")
    for widths in _WIDTH.findall(plain):
        for digits in widths:
            width(budget, digits)
    uses = left.count("%") if isinstance(right, Mapping) else 1
    grown = _ESCAPED * _REPR if isinstance(left, Markup) else _REPR
    budget.spend(uses * grown * budget.measure(right) + 4 * len(left))
    text = left % right
    values = right if isinstance(right, (tuple, Mapping)) else (right,)
    simple = all(isinstance(value, _SIMPLE) for value in values)
    return text if simple else GUARD.get().unescaped(text)


def width(budget: Budget, digits: str) -> None:
    """Charge for the width or precision in a format."""
    for number in _DIGITS.findall(digits):
        budget.text(int(number[:9]))


def _minus(left: Any, right: Any) -> Any:
    if not isinstance(left, _SIMPLE) or not isinstance(right, _SIMPLE):
        raise TypeError("only numbers can be subtracted")
    return BUDGET.get().number(left - right)  # type: ignore[operator]


OPERATORS: Mapping[str, Callable[[Any, Any], Any]] = {
    "+": _plus,
    "-": _minus,
    "*": _times,
    "**": _power,
    "%": percent,
}
"""Operators whose result can be much larger than their operands. Division's cannot."""


def joined(separator: str, values: Iterable[Any]) -> str:
    """`separator.join(values)` of texts."""
    budget = BUDGET.get()
    texts = budget.listed(values)
    length = sum(map(len, texts)) + len(separator) * len(texts)
    ascii_only = separator.isascii() and all(map(str.isascii, texts))
    grown = _ESCAPED if isinstance(separator, Markup) else 1
    budget.text(length * grown, 1 if ascii_only else 4)
    return separator.join(texts)


_BREAKS = "\n\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"
_CASE = 12
"""Bytes per character: case mapping makes up to three characters of one, of four bytes each."""
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
    list: frozenset(["append", "count", "index", "pop"]),
    tuple: frozenset(["count", "index"]),
}


_CHANGES = frozenset(["append", "pop"])
"""Methods that change a list: Kimi K2's template keeps the ids of its calls in a queue."""


def call_method(owner: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`owner.name(*args, **kwargs)`. Raises OverBudget or SecurityError."""
    if isinstance(owner, str):
        return call_text(owner, name, *args, **kwargs)
    if not any(isinstance(owner, kind) and name in METHODS[kind] for kind in (dict, list, tuple)):
        raise SecurityError(f"{name!r} of a {type(owner).__name__} is not safe")
    if name in _CHANGES:
        if not isinstance(owner, OwnList):
            raise SecurityError(f"{name!r} is unsafe for a list that the template did not make")
        BUDGET.get().spend(STEP + (SLOT * len(owner) if name == "pop" else 2 * SLOT))
    elif isinstance(owner, dict):
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
    """Upper bound of the number of line breaks, for `splitlines`."""
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
    """Numbers keep their type for formatting; other values become text."""
    budget.spend(STEP)
    if isinstance(value, (int, float)):
        return value
    return value if isinstance(value, Markup) else text_of(value)
