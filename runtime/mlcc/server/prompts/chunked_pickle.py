"""Pickles values of JSON in pieces, so that no single call holds the interpreter's lock for long.

Pickling and unpickling are calls of C, during which no other thread runs: a list of a million
numbers takes 40 to 70 ms. Here a list of more than `CHUNK` items is a persistent object of several
pickles, and between those, as between the objects that are pickled, another thread gets its turn.
"""

from __future__ import annotations

import io
import pickle
from typing import Any

CHUNK = 1 << 13
"""Items of a list in one piece."""


def dumps(value: Any) -> bytes:
    """The pickle of a value, for `loads`. Lists that occur twice become two."""
    out = io.BytesIO()
    _Pickler(out, pickle.HIGHEST_PROTOCOL).dump(value)
    return out.getvalue()


def loads(data: bytes) -> Any:
    """The value. Only for data of this server's own processes: a pickle can run anything."""
    return _Unpickler(io.BytesIO(data)).load()


class _Pickler(pickle.Pickler):
    def persistent_id(self, obj: Any) -> list[bytes] | None:
        """The pieces of a long list. Python calls this for each object, which is also when another
        thread may run."""
        if type(obj) is not list or len(obj) <= CHUNK:
            return None
        return [dumps(obj[start : start + CHUNK]) for start in range(0, len(obj), CHUNK)]


class _Unpickler(pickle.Unpickler):
    def persistent_load(self, pieces: list[bytes]) -> list[Any]:
        return [item for piece in pieces for item in loads(piece)]
