"""Converts values between Python and JavaScript. The only file that imports Pyodide.

In tests both sides are Python, and a buffer stays a buffer.
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
    """Return the function that copies a buffer into JavaScript's memory: bytes become a Uint8Array,
    int32 an Int32Array."""
    if not IN_PYODIDE:
        return lambda buffer: buffer
    from pyodide.ffi import to_js  # type: ignore[import-not-found]

    return to_js  # type: ignore[no-any-return]


def to_python(value: Any) -> Any:
    """Convert a JavaScript object or array to a dict or list, a typed array to a memoryview."""
    return value.to_py() if hasattr(value, "to_py") else value


def to_bytes(value: Any) -> bytes:
    """Convert a Uint8Array, a Python buffer, or text as UTF-8 (lone surrogates pass through)."""
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass")
    return bytes(to_python(value))


def failed(error: MlccError) -> str:
    """Return an mlcc error as JSON; JavaScript raises its own error from it (`parsed` in
    web/src/worker/tab.ts)."""
    plain = {
        "type": type(error).__name__,
        "message": error.message,
        "code": error.code,
        "param": error.param,
        "http_status": error.http_status,
    }
    return json.dumps({"error": plain})
