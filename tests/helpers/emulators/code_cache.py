"""The cache of code while a test compiles for an emulated GPU: of entries of the tests' own, by
what the emulated device's compiler depends on, so that no real device gets them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from mlcc_compiler import object_files
from tests.helpers import shared


@dataclass(frozen=True)
class _EmulatedCode:
    """Takes the place of `mlcc.util.file_cache.KERNELS`."""

    made_of: Sequence[str | bytes]

    def load(self, key: str) -> bytes | None:
        return shared.load(f"emulated {key}", self.made_of)

    def store(self, key: str, data: bytes) -> None:
        shared.store(f"emulated {key}", self.made_of, data)

    def trim(self) -> None:
        """The tests' cache is trimmed when a process ends."""


def replace_cache(patch: pytest.MonkeyPatch, made_of: Sequence[str | bytes]) -> None:
    """Keep code apart from real devices', until the patch is undone. made_of: what the compiler of
    the device's code depends on."""
    patch.setattr(object_files, "KERNELS", _EmulatedCode(made_of))
