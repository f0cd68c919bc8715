"""Fields of a request that nobody here knows: found, so that they can be named.

Clients send fields of other servers (`chat_id`, `cache_control`), and other servers ignore them. So
are they here, but not in silence: the answer names them, and so does the server's log.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from mlcc.api.schema.schema import Object, Use, refusal
from mlcc.api.schema.tagged_union import Tagged
from mlcc.api.schema.types import Custom, Either, Json, Many
from mlcc.errors import InvalidRequestError

HEADER = "x-mlcc-ignored"
MOST = 16
"""Fields that are named."""


def unknown(table: Object, body: Json) -> list[InvalidRequestError]:
    """What a strict server would say of each, `param` naming it; the first ones."""
    return list(islice(_in_object(table, body, ""), MOST))


def header(found: list[InvalidRequestError]) -> dict[str, str]:
    """The header that names them; nothing for none."""
    names = ", ".join(_printable(error.param or "") for error in found)
    return {HEADER: names} if found else {}


def _printable(name: str) -> str:
    """Nothing that ends a header, a line or a list, and no space where a header may have none."""
    printed = ascii(name)[1:-1].replace(",", "\\x2c")
    return printed if printed and printed == printed.strip(" ") else f"'{printed}'"


def _in_object(table: Object, value: Json, where: str) -> Iterator[InvalidRequestError]:
    if not isinstance(value, Mapping):
        return
    for name in value:
        if name not in table.names:
            yield refusal(table, name, where)
    for field in table.fields:
        if field.use is Use.HONOURED and field.name in value:
            path = f"{where}.{field.name}" if where else field.name
            yield from _in_value(field.type, value[field.name], path)


def _in_value(kind: Any, value: Json, where: str) -> Iterator[InvalidRequestError]:
    if isinstance(kind, Object):
        yield from _in_object(kind, value, where)
    elif isinstance(kind, Tagged):
        yield from _in_tagged(kind, value, where)
    elif isinstance(kind, Many) and isinstance(value, list):
        for i, item in enumerate(value):
            yield from _in_value(kind.item, item, f"{where}[{i}]")
    elif isinstance(kind, Either):
        yield from _in_value(kind.array if isinstance(value, list) else kind.plain, value, where)
    elif isinstance(kind, Custom):
        shapes = [
            one for one in kind.shapes if isinstance(one, Object) == isinstance(value, Mapping)
        ]
        found = (list(_in_value(shape, value, where)) for shape in shapes)
        yield from min(found, key=len, default=[])  # of several, the one that is meant


def _in_tagged(kind: Tagged, value: Json, where: str) -> Iterator[InvalidRequestError]:
    if not isinstance(value, Mapping):
        return
    said = kind.kind(value)
    if table := kind.kinds.get(said):
        extra = {name: entry for name, entry in value.items() if name != kind.key}
        yield from _in_object(table, extra, where)
    elif kind.open:
        yield InvalidRequestError(
            f"'{where}' is of type {str(said)[:40]!a}, which nobody here runs; leave it out",
            param=where,
            code="unknown_parameter",
        )
