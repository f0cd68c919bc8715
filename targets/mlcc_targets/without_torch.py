"""How TVM is imported where PyTorch happens to be installed: without it.

TVM's foreign function interface imports torch, if it is there, to convert its tensors faster. mlcc
has none, and it would add 2 seconds and 200 MB to every command.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import cast


@contextmanager
def without_torch() -> Iterator[None]:
    """While inside, `import torch` fails, unless this process has imported it already."""
    if "torch" in sys.modules:
        yield
        return
    sys.modules["torch"] = cast(ModuleType, None)
    try:
        yield
    finally:
        del sys.modules["torch"]
