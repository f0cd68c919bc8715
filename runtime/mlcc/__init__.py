"""mlcc: load a compiled language model and answer with it.

This package is the engine that every device shares. It is not the compiler
(`mlcc_compiler`) and never imports it.
"""

import sys
from typing import TYPE_CHECKING, Any

from mlcc.version import __version__

if TYPE_CHECKING:
    from mlcc.local.engine import AsyncEngine, Engine

__all__ = ["AsyncEngine", "Engine", "__version__"]


def __getattr__(name: str) -> Any:
    """`Engine` and `AsyncEngine`, imported when asked for: most of mlcc needs far less."""
    if name not in ("AsyncEngine", "Engine"):
        raise AttributeError(f"module 'mlcc' has no attribute {name!r}")
    if sys.platform == "emscripten" and name == "Engine":  # a browser's tab has no threads
        from mlcc.local import notebook

        return notebook.Engine
    from mlcc.local import engine

    return getattr(engine, name)
