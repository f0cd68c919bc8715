"""Names the fields of a request that no table has: in a response header, and in the log.

Also fields that ask for what is not done, and the types of an `open` union that are not run here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from mlcc.api.schema.schema import (
    Custom,
    Either,
    Field,
    Flag,
    Integer,
    Json,
    Many,
    Number,
    Object,
    Tagged,
    Text,
    Use,
    is_neutral,
    refusal,
)
from mlcc.errors import InvalidRequestError

SCALARS = (Number, Integer, Flag, Text)
"""Types without fields: long arrays of them hold no unknown ones."""
HEADER = "x-mlcc-ignored"
MOST = 16
"""Most unknown fields that are named."""


def unknown(table: Object, body: Json) -> list[InvalidRequestError]:
    """An error for each unknown field, as a strict server would raise it; at most `MOST`."""
    return list(islice(_in_object(table, body, ""), MOST))


def header(found: list[InvalidRequestError]) -> dict[str, str]:
    """The response header that names them; empty if there are none."""
    names = ", ".join(_printable(error.param or "") for error in found)
    return {HEADER: names} if found else {}


def merged_headers(*headers: Mapping[str, str]) -> dict[str, str]:
    """One header of several from `header`."""
    names = ", ".join(found[HEADER] for found in headers if HEADER in found)
    return {HEADER: names} if names else {}


def _printable(name: str) -> str:
    """The name without characters that end a header, a line or a list, or a header may not have."""
    printed = ascii(name)[1:-1].replace(",", "\\x2c")
    return printed if printed and printed == printed.strip(" ") else f"'{printed}'"


def _in_object(table: Object, value: Json, where: str) -> Iterator[InvalidRequestError]:
    if not isinstance(value, Mapping):
        return
    for name in value:
        if name not in table.names:
            yield refusal(table, name, where)
    for row in table.fields:
        if row.use is Use.HONOURED and row.name in value:
            path = f"{where}.{row.name}" if where else row.name
            yield from _in_value(row.type, value[row.name], path)
        elif row.neutral and row.use is Use.METADATA and _is_wish(row, value):
            yield _not_granted(f"{where}.{row.name}" if where else row.name)


def _is_wish(field: Field, value: Mapping[str, Any]) -> bool:
    return not is_neutral(value.get(field.name), (None, *field.neutral))


def _not_granted(path: str) -> InvalidRequestError:
    return InvalidRequestError(
        f"'{path}' asks for what is not done here, and no answer depends on it; leave it out",
        param=path,
        code="unknown_parameter",
    )


def _in_value(kind: Any, value: Json, where: str) -> Iterator[InvalidRequestError]:
    if isinstance(kind, Object):
        yield from _in_object(kind, value, where)
    elif isinstance(kind, Tagged):
        yield from _in_tagged(kind, value, where)
    elif isinstance(kind, Many) and isinstance(value, list):
        if isinstance(kind.item, SCALARS):
            return
        for i, item in enumerate(value):
            yield from _in_value(kind.item, item, f"{where}[{i}]")
    elif isinstance(kind, Either):
        yield from _in_value(kind.array if isinstance(value, list) else kind.plain, value, where)
    elif isinstance(kind, Custom):
        shapes = [
            one for one in kind.shapes if isinstance(one, Object) == isinstance(value, Mapping)
        ]
        found = (list(_in_value(shape, value, where)) for shape in shapes)
        yield from min(found, key=len, default=[])  # the variant that fits best


def _in_tagged(kind: Tagged, value: Json, where: str) -> Iterator[InvalidRequestError]:
    if not isinstance(value, Mapping):
        return
    type_name = kind.kind(value)
    if table := kind.kinds.get(type_name):
        extra = {name: entry for name, entry in value.items() if name != kind.key}
        yield from _in_object(table, extra, where)
    elif isinstance(type_name, str) and kind.keeps_name(type_name):
        yield InvalidRequestError(
            f"'{where}' is of type {str(type_name)[:40]!a}, which is not run here; leave it out",
            param=where,
            code="unknown_parameter",
        )
