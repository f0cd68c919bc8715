"""Names of fields of a request that was translated to OpenAI's: errors and the response header name
the fields that were sent."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TypeVar

from mlcc.errors import MlccError

E = TypeVar("E", bound=MlccError)
_QUOTED = re.compile(r"'([a-z_][\w.\[\]]*)'")


class FieldNames:
    """names: the sent name of a field, by its path in the translated request. Fields in it are
    renamed with it."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self._names = sorted(names.items(), key=lambda pair: -len(pair[0]))

    def of(self, path: str) -> str:
        """The sent name of a field."""
        for ours, sent in self._names:
            if path == ours or path.startswith((f"{ours}.", f"{ours}[")):
                return sent + path[len(ours) :]
        return path

    def renamed(self, error: E) -> E:
        """The error, which names the sent field now."""
        if error.param and self._names:
            error.param = self.of(error.param)
            error.message = _QUOTED.sub(lambda found: f"'{self.of(found[1])}'", error.message)
            error.args = (error.message,)
        return error


AS_SENT = FieldNames({})
"""Of a request that was not translated."""
