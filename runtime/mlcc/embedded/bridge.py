"""How values cross between Python and JavaScript. The one file that imports Pyodide, when there.

Elsewhere (in tests) both sides are Python, and a buffer is a buffer.
"""

from __future__ import annotations

import json
import sys
from array import array
from collections.abc import Callable
from typing import Any

from mlcc.errors import MlccError

IN_PYODIDE = sys.platform == "emscripten"


def typed_array() -> Callable[[memoryview[int] | array[Any]], Any]:
    """The function that copies a buffer into JavaScript's memory: one of bytes becomes a
    Uint8Array, one of int32 an Int32Array."""
    if not IN_PYODIDE:
        return lambda buffer: buffer
    from pyodide.ffi import to_js  # type: ignore[import-not-found]

    return to_js  # type: ignore[no-any-return]


def to_python(value: Any) -> Any:
    """A JavaScript object or array as a dict or list, a typed array as a memoryview."""
    return value.to_py() if hasattr(value, "to_py") else value


def to_bytes(value: Any) -> bytes:
    """A Uint8Array, a Python buffer, or text as UTF-8 (half surrogates as what they are)."""
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass")
    return bytes(to_python(value))


def failed(error: MlccError) -> str:
    """An expected error, as plain data; `parsed` in web/src/worker/tab.ts makes it an exception."""
    plain = {
        "type": type(error).__name__,
        "message": error.message,
        "code": error.code,
        "param": error.param,
        "http_status": error.http_status,
    }
    return json.dumps({"error": plain})
