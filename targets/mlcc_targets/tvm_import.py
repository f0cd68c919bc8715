"""Imports TVM without what mlcc does not use: PyTorch, and the search for a distributed runtime.

TVM's foreign function interface imports torch, if installed, to convert its tensors faster. mlcc
uses no torch tensors, and the import would add 2 seconds and 200 MB to every command. TVM's
compiler has no distributed runtime (disco), and TVM finds that out by an error with a backtrace,
for which the debug tables of 260 MB of libraries are read: a quarter of the import. The garbage
collector, which would visit every new class and function again and again, waits.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import cast

ABSENT = ("torch", "tvm.runtime.disco")
"""Modules whose import fails."""


@contextmanager
def importing_tvm() -> Iterator[None]:
    """Within the context the modules of `ABSENT` cannot be imported, except those that the process
    has imported already."""
    with no_collections():
        absent = [name for name in ABSENT if name not in sys.modules]
        for name in absent:
            sys.modules[name] = cast(ModuleType, None)
        try:
            yield
        finally:
            for name in absent:
                del sys.modules[name]


@contextmanager
def no_collections() -> Iterator[None]:
    """Within the context no garbage is collected: it makes objects that stay."""
    running = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if running:
            gc.enable()
