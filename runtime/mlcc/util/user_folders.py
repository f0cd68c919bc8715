"""The folders of mlcc's files that belong to a user: each system's usual ones, or XDG's variables.

| | cache | state | data |
|---|---|---|---|
| Linux | ~/.cache | ~/.local/state | ~/.local/share |
| macOS | ~/Library/Caches | ~/Library/Application Support | the same |
| Windows | %LOCALAPPDATA% | the same | the same |

XDG_CACHE_HOME, XDG_STATE_HOME and XDG_DATA_HOME come first on each of them. Creates nothing.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

_LINUX = {"CACHE": ".cache", "STATE": ".local/state", "DATA": ".local/share"}
_MACOS = {"CACHE": "Library/Caches"}


def cache() -> Path:
    """For what can be made again. Raises RuntimeError if the user has no home."""
    return _folder("CACHE")


def state() -> Path:
    """For what runs leave to each other. Raises RuntimeError if the user has no home."""
    return _folder("STATE")


def data() -> Path:
    """For the user's own tables. Raises RuntimeError if the user has no home."""
    return _folder("DATA")


def _folder(kind: str) -> Path:
    if base := os.environ.get(f"XDG_{kind}_HOME"):
        return Path(base) / "mlcc"
    if sys.platform == "win32":
        local = os.environ.get("LOCALAPPDATA")
        return (Path(local) if local else Path.home() / "AppData" / "Local") / "mlcc"
    if sys.platform == "darwin":
        return Path.home() / _MACOS.get(kind, "Library/Application Support") / "mlcc"
    return Path.home() / _LINUX[kind] / "mlcc"
