"""Imports TVM without PyTorch, even if that is installed.

TVM's foreign function interface imports torch, if installed, to convert its tensors faster. mlcc
uses no torch tensors, and the import would add 2 seconds and 200 MB to every command.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import cast


@contextmanager
def without_torch() -> Iterator[None]:
    """Within the context, `import torch` fails, unless the process has imported it already."""
    if "torch" in sys.modules:
        yield
        return
    sys.modules["torch"] = cast(ModuleType, None)
    try:
        yield
    finally:
        del sys.modules["torch"]
