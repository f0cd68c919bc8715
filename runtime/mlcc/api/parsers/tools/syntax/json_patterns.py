"""Regular expressions of JSON Schema as expressions over JSON's text, in which a character may be
spelled as itself or by any of its escapes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

try:
    from re import _parser  # type: ignore[attr-defined]
except ImportError:  # Python 3.10
    import sre_parse as _parser

Ranges: TypeAlias = list[tuple[int, int]]
"""Characters: first and last code points, ascending and apart."""
LAST = 0x10FFFF
LONGEST = 16_000
"""Most characters of an expression."""
_HEX = "[0-9a-fA-F]"
_SHORT = {8: "b", 9: "t", 10: "n", 12: "f", 13: "r", 34: '"', 47: "\\/", 92: "\\\\"}
"""Characters with an escape of two characters."""
_RAW: Ranges = [(0x20, 0x21), (0x23, 0x5B), (0x5D, 0xD7FF), (0xE000, LAST)]
"""Characters that may stand for themselves in a string."""
_BASIC: Ranges = [(0, 0xD7FF), (0xE000, 0xFFFF)]
_PAIRS: Ranges = [(0x10000, LAST)]
_PAIR = rf"[dD][89abAB]{_HEX}{{2}}\\u[dD][c-fC-F]{_HEX}{{2}}"
_DIGITS: Ranges = [(48, 57)]
_WORD: Ranges = [(48, 57), (65, 90), (95, 95), (97, 122)]
_SPACE: Ranges = [(9, 13), (32, 32), (160, 160), (0x1680, 0x1680), (0x2000, 0x200A)]
_SPACE += [(0x2028, 0x2029), (0x202F, 0x202F), (0x205F, 0x205F), (0x3000, 0x3000)]
_CATEGORIES = {"DIGIT": _DIGITS, "WORD": _WORD, "SPACE": _SPACE}
"""Of ECMA 262, whose expressions JSON Schema has."""


class _Unknown(Exception):
    """An expression that is not converted."""


def json_pattern(pattern: str) -> str | None:
    """An expression for the text between the quotes of a JSON string that has a match; None = it is
    left to llguidance."""
    try:
        parsed = _parser.parse(pattern)
        if parsed.state.flags & ~re.UNICODE:
            return None
        found = _whole([*parsed])
    except (_Unknown, re.error, RecursionError, OverflowError):
        return None
    return found if len(found) <= LONGEST else None


def has_one_spelling(text: str) -> bool:
    """Whether a text is of characters that models spell in one way: ASCII's, without `/`."""
    return all(" " <= character <= "~" and character != "/" for character in text)


def spelled(text: str) -> str:
    """An expression for the text between the quotes of a JSON string with this value. Characters of
    one spelling have only that one."""
    return "".join(
        re.escape(json.dumps(character)[1:-1])
        if has_one_spelling(character)
        else _one([(ord(character), ord(character))])
        for character in text
    )


def _whole(parts: list[Any]) -> str:
    """A whole expression: without anchors, any text may be around it."""
    if len(parts) == 1 and str(parts[0][0]) == "BRANCH":
        return "(" + "|".join(_whole([*branch]) for branch in parts[0][1][1]) + ")"
    anything = f"{_one([(0, LAST)])}*"
    before, after = anything, anything
    if parts and _is_at(parts[0], "AT_BEGINNING"):
        parts, before = parts[1:], ""
    if parts and _is_at(parts[-1], "AT_END"):
        parts, after = parts[:-1], ""
    return before + _sequence(parts) + after


def _is_at(part: Any, place: str) -> bool:
    return (str(part[0]), str(part[1])) == ("AT", place)


def _sequence(parts: Iterable[Any]) -> str:
    return "".join(_part(str(kind), value) for kind, value in parts)


def _part(kind: str, value: Any) -> str:
    if kind == "SUBPATTERN" and not value[1] and not value[2]:
        return f"({_sequence(value[3])})"
    if kind == "BRANCH":
        return "(" + "|".join(map(_sequence, value[1])) + ")"
    if kind in ("MAX_REPEAT", "MIN_REPEAT"):
        least, most, inner = value
        end = "" if most is _parser.MAXREPEAT else most
        return f"({_sequence(inner)}){{{least},{end}}}"
    return _one(_characters(kind, value))


def _characters(kind: str, value: Any) -> Ranges:
    """The characters that a part matches."""
    if kind == "LITERAL":
        return [(value, value)]
    if kind == "NOT_LITERAL":
        return _others([(value, value)])
    if kind == "ANY":
        return _others([(10, 10)])
    if kind == "IN":
        return _class(value)
    raise _Unknown


def _class(entries: Sequence[Any]) -> Ranges:
    """The characters of `[...]`."""
    found: Ranges = []
    negated = str(entries[0][0]) == "NEGATE"
    for kind, value in entries[negated:]:
        if str(kind) == "LITERAL":
            found.append((value, value))
        elif str(kind) == "RANGE":
            found.append(value)
        elif str(kind) == "CATEGORY":
            name = str(value).removeprefix("CATEGORY_")
            known = _CATEGORIES.get(name.removeprefix("NOT_"))
            if known is None:
                raise _Unknown
            found += _others(known) if name.startswith("NOT_") else known
        else:
            raise _Unknown
    merged = _others(_others(found))
    return _others(merged) if negated else merged


def _others(ranges: Ranges) -> Ranges:
    """All other characters."""
    found, begin = [], 0
    for first, last in sorted(ranges):
        if first > begin:
            found.append((begin, first - 1))
        begin = max(begin, last + 1)
    return [*found, (begin, LAST)] if begin <= LAST else found


def _both(one: Ranges, other: Ranges) -> Ranges:
    """The characters that are in both."""
    pairs = ((max(a, c), min(b, d)) for a, b in one for c, d in other)
    return sorted((a, b) for a, b in pairs if a <= b)


def _one(characters: Ranges) -> str:
    """One of these characters, in all its spellings."""
    ways = []
    if raw := _both(characters, _RAW):
        ways.append("[" + "".join(rf"\x{{{a:x}}}-\x{{{b:x}}}" for a, b in raw) + "]")
    short = [text for code, text in _SHORT.items() if _both(characters, [(code, code)])]
    if short:
        ways.append(rf"\\[{''.join(short)}]")
    coded = [_hex(f"{a:04x}", f"{b:04x}") for a, b in _both(characters, _BASIC)]
    if (pairs := _both(characters, _PAIRS)) == _PAIRS:
        coded.append(_PAIR)
    coded += [_coded_pair(a) for a, b in pairs if a == b]
    if coded:
        ways.append(rf"\\u({'|'.join(coded)})")
    if not ways:
        raise _Unknown
    return f"({'|'.join(ways)})"


def _coded_pair(code: int) -> str:
    """A character beyond the basic plane by its two numbers."""
    units = chr(code).encode("utf-16-be").hex()
    high, low = units[:4], units[4:]
    return rf"{_hex(high, high)}\\u{_hex(low, low)}"


def _hex(low: str, high: str) -> str:
    """The numbers of a range in hexadecimal, of equal lengths, in upper and lower case."""
    rest = len(low) - 1
    if not low:
        return ""
    if set(low) == {"0"} and set(high) == {"f"}:
        return f"{_HEX}{{{len(low)}}}"
    if low[0] == high[0]:
        return _digits(low[0]) + _hex(low[1:], high[1:])
    between = "0123456789abcdef"[int(low[0], 16) + 1 : int(high[0], 16)]
    parts = [_digits(low[0]) + _hex(low[1:], "f" * rest)]
    if between:
        parts.append(_digits(between) + (f"{_HEX}{{{rest}}}" if rest else ""))
    parts.append(_digits(high[0]) + _hex("0" * rest, high[1:]))
    return f"({'|'.join(parts)})"


def _digits(digits: str) -> str:
    return f"[{''.join(dict.fromkeys(digits + digits.upper()))}]"
