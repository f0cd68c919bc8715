"""A JSON object whose `type` says which of several tables it follows: blocks, items and tools of
the protocols that have them.

`check` gives the fields that are honoured, and the type under its name. What is of no known type is
refused by name, or, in a place that is `open`, kept as its type alone: such a place holds what a
server of another make would do itself (a web search), and whoever reads it leaves that out.
`mlcc.api.schema.unknown_fields` names it then.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from mlcc.api.schema.schema import Object
from mlcc.api.schema.types import Json, Text, refuse
from mlcc.errors import InvalidRequestError, UnsupportedError
from mlcc.util.fast_dataclass import fast_dataclass


@fast_dataclass(frozen=True)
class Tagged:
    """One of `kinds`, by the value of `key`."""

    what: str
    """In words that follow 'must be': "a content block"."""
    kinds: Mapping[str, Object]
    key: str = "type"
    default: str = ""
    """What an object without the key is; "" = it must say."""
    open: bool = False
    """Whether other types are kept, as their names alone."""
    refused: Mapping[str, str] = field(default_factory=dict)
    """Types that are known and not built, each with what to do instead."""

    @property
    def wants(self) -> str:
        return self.what

    def check(self, value: Json, where: str) -> dict[str, Any]:
        """Raises InvalidRequestError or UnsupportedError naming `where`."""
        if not isinstance(value, Mapping):
            raise refuse(self, value, where)
        kind = self.kind(value)
        path = f"{where}.{self.key}"
        if kind is None:
            raise InvalidRequestError(
                f"'{path}' is missing; it must be {Text(tuple(self.kinds)).wants}",
                param=path,
                code="missing_required_parameter",
            )
        Text().check(kind, path)
        if kind in self.kinds:
            rest = {name: entry for name, entry in value.items() if name != self.key}
            return {**self.kinds[kind].check(rest, where), self.key: kind}
        if self.open and kind not in self.refused:
            return {self.key: kind}
        advice = self.refused.get(kind, f"send {Text(tuple(self.kinds)).wants}")
        raise UnsupportedError(
            f"'{where}' is of type {kind[:40]!a}, which is not built; {advice}",
            param=path,
            code="unsupported_value",
        )

    def kind(self, value: Mapping[str, Any]) -> Any:
        """What it says it is; None = nothing."""
        said = value.get(self.key)
        return self.default or None if said is None else said
