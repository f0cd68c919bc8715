"""JSON of large values, written and parsed piece by piece.

Python writes and parses JSON in one call of C, during which no other thread runs: a million token
ids take 60 ms. In pieces, an event loop beside the thread that does it goes on. Standard library
only.
"""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from json import JSONDecoder
from typing import Any

from mlcc.service.http.types import JSON_TYPE, PIECE, ApiResponse, LongText, to_json

MANY_CHARACTERS = 64 << 10
"""A text of this length or less is parsed in one call, in the caller's thread."""
FLAT, NESTED = 1 << 12, 16
"""Items of a list in one piece: numbers and texts, and lists and objects."""
MANY_INNER = 64
"""Items of a list or object that is written together with its neighbours."""
_next = JSONDecoder().raw_decode


def json_text(value: Any) -> LongText:
    """The text that `to_json` makes. Keys must be strings. A list may be an array of numbers, or an
    iterator of its items: a million objects take 60 ms to be freed, unless each goes at once."""
    pieces: list[str] = []
    some: list[str] = []
    size = 0
    for part in _pieces(value):
        some.append(part)
        size += len(part)
        if size >= PIECE:
            pieces.append("".join(some))
            some, size = [], 0
    return LongText([*pieces, "".join(some)])


def to_json_by_pieces(value: Any) -> str:
    """`json_text` joined: a copy of 50 MB takes 30 ms."""
    return str(json_text(value))


def _pieces(value: Any) -> Iterator[str]:
    if type(value) is dict:
        for number, (name, item) in enumerate(value.items()):
            yield f"{',' if number else '{'}{to_json(name)}:"
            yield from _pieces(item)
        yield "}" if value else "{}"
    elif isinstance(value, array):
        yield from _of_items(iter(value), FLAT)
    elif isinstance(value, Iterator):
        yield from _of_items(value, NESTED)
    elif type(value) is not list or not value:
        yield to_json(value)
    elif all(map(_is_flat, value)):
        size = NESTED if any(isinstance(item, list | dict) for item in value) else FLAT
        for start in range(0, len(value), size):
            yield ("," if start else "[") + to_json(value[start : start + size])[1:-1]
        yield "]"
    else:
        for number, item in enumerate(value):
            yield "," if number else "["
            yield from _pieces(item)
        yield "]"


def _of_items(items: Iterator[Any], size: int) -> Iterator[str]:
    separator = "["
    while some := [*islice(items, size)]:
        yield separator + to_json(some)[1:-1]
        separator = ","
    yield "]" if separator == "," else "[]"


async def response_by_pieces(make: Callable[[], Any], headers: Mapping[str, str]) -> ApiResponse:
    """The response with the value that `make` returns, made and written in a thread."""
    text = await asyncio.to_thread(lambda: json_text(make()))
    return ApiResponse(200, {"content-type": JSON_TYPE, **headers}, text)


def _is_flat(item: Any) -> bool:
    """Whether an item of a list has few items and no lists or objects in them."""
    if not isinstance(item, list | dict):
        return True
    inner = item.values() if isinstance(item, dict) else item
    return len(item) <= MANY_INNER and not any(isinstance(each, list | dict) for each in inner)


def parse_lists(text: str) -> dict[str, list[Any]]:
    """The value of an object of lists that `to_json` wrote, without spaces. Raises ValueError."""
    found: dict[str, list[Any]] = {}
    if text == "{}":
        return found
    at = 0
    try:
        while text[at] in "{,":
            name, at = _next(text, at + 1)
            found[name], at = _items(text, at + 1)
        if text[at:] != "}":
            raise ValueError(f"no '}}' at character {at}")
    except IndexError:
        raise ValueError("the text ends too early") from None
    return found


def _items(text: str, at: int) -> tuple[list[Any], int]:
    """The items of the list that begins at a character, and where it ends."""
    items: list[Any] = []
    if text[at : at + 2] == "[]":
        return items, at + 2
    while text[at] in "[,":
        item, at = _next(text, at + 1)
        items.append(item)
    return items, at + 1
