"""What jinja's operators do, each paid for before it is done, and how values become text.

Names here are those of `sandbox.py`'s rewriting: a template's `a[1:]`, `a in b`, `a ~ b` ... come
here. Its methods of strings are in `methods.py`, its filters in `filters.py`.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from jinja2.filters import do_mark_safe
from jinja2.runtime import Undefined

from mlcc.api.chat_template.budget import BUDGET, SLOT, STEP, Budget, OverBudget
from mlcc.api.chat_template.control_tokens import GUARD, aligned

Markup: type[str] = type(do_mark_safe(""))
"""Text that jinja's `safe` marked: what it meets is escaped."""
_REPR = 10
"""A character may become `\\U0001f600`."""
_ESCAPED = 6
"""A character may become `&#34;` when it meets jinja's Markup."""
_LONG_KEY = 1000
_KEY = re.compile(r"%\([^()]*\)")
_WIDTH = re.compile(r"%[#0\- +]*(\d*)(?:\.(\d*))?")
_STARRED = re.compile(r"%[#0\- +]*\d*(?:\.\d*)?\*|%[#0\- +]*\d*\.\*")
_DIGITS = re.compile(r"\d+")


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


def concat(*parts: Any) -> str:
    """`a ~ b`."""
    return "".join([text_of(part) for part in parts])


def made(value: Any) -> Any:
    """A list, tuple or dict as the template writes it: a few entries, charged by their number."""
    BUDGET.get().spend(STEP + 2 * STEP * len(value))
    return value


def key(value: Any) -> Any:
    """What a template writes as the key of a dict, or indexes with: its hash has a price."""
    if not isinstance(value, (str, int, float)):
        BUDGET.get().measure(value)
    elif isinstance(value, str) and len(value) > _LONG_KEY:
        BUDGET.get().text(len(value), 3 * _REPR)  # for the words that it is not there
    return value


def spread(values: Any) -> Any:
    """`*values` and `**values` in a call."""
    budget = BUDGET.get()
    if isinstance(values, Mapping):
        budget.spend(STEP + 2 * STEP * len(values))
        return values
    return budget.listed(values)


def entered(weight: int) -> str:
    """The body of a macro or loop begins; `weight` = its length."""
    BUDGET.get().spend(weight)
    return ""


def looped(values: Any, weight: int) -> Any:
    """What a loop runs over, paid for at once where its length is known."""
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
    return value[start:stop:step]


def search_price(text: str, sought: Any) -> int:
    """Of looking for something in a text: in the worst case each place is compared in full."""
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
"""By jinja's names of them."""


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
        return left + right  # type: ignore[operator]
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
    """Charge a width or precision that a format asks for."""
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
"""The operators that can make much from little. Division makes a number smaller."""


def joined(separator: str, values: Iterable[Any]) -> str:
    """`separator.join(values)` of texts."""
    budget = BUDGET.get()
    texts = budget.listed(values)
    length = sum(map(len, texts)) + len(separator) * len(texts)
    ascii_only = separator.isascii() and all(map(str.isascii, texts))
    grown = _ESCAPED if isinstance(separator, Markup) else 1
    budget.text(length * grown, 1 if ascii_only else 4)
    return separator.join(texts)
