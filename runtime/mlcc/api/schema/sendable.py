"""Whether a value of a body can be sent back as it came: what Python reads of JSON may be more than
UTF-8 and JSON can write. For protocols whose answers repeat their requests."""

from __future__ import annotations

import math

from mlcc.api.schema.types import Json, Text
from mlcc.errors import InvalidRequestError, printable


def check_sendable(value: Json) -> None:
    """Raises InvalidRequestError, which names the place, for half of a surrogate pair, in keys too,
    and for a number that is too large for JSON's readers (1e999)."""
    left: list[tuple[Json, str]] = [(value, "")]
    while left:
        this, where = left.pop()
        if isinstance(this, str):
            Text().check(this, where)
        elif isinstance(this, float) and not math.isfinite(this):
            raise InvalidRequestError(
                f"'{where}' is too large a number; send a smaller one",
                param=where,
                code="invalid_value",
            )
        elif isinstance(this, list):
            left += [(entry, f"{where}[{i}]") for i, entry in enumerate(this)]
        elif isinstance(this, dict):
            for key, entry in this.items():
                place = f"{where}.{printable(key[:40])}" if where else printable(key[:40])
                Text().check(key, place)
                left.append((entry, place))
