"""mobile/swift/package.py as a module."""

from __future__ import annotations

import importlib.util
import sys
from functools import cache
from pathlib import Path
from typing import Any

SWIFT = Path(__file__).parents[3] / "mobile" / "swift"


@cache
def load() -> Any:
    """The module. Its name elsewhere would be `package`, as of other folders' scripts."""
    spec = importlib.util.spec_from_file_location("mlcc_ios_package", SWIFT / "package.py")
    assert spec is not None and spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = found  # dataclasses look there
    spec.loader.exec_module(found)
    return found
