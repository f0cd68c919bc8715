"""Packs mlcc's native parts and Kotlin modules for the JVM and for Android; see package.py."""

from __future__ import annotations

import sys
from pathlib import Path

ANDROID = Path(__file__).resolve().parents[1]
ROOT = ANDROID.parents[1]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))  # for `tools`


class PackingError(SystemExit):
    """A part is missing or wrong; the message says what to type."""

    def __init__(self, message: str) -> None:
        super().__init__(f"mobile/android: {message}")
