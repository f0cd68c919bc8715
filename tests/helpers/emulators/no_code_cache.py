"""Takes the place of the cache of code while a test compiles for an emulated GPU, whose "machine
code" is the path of a library in a folder of this run: no other run may find it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from mlcc_compiler import object_files


class _NoCache:
    def load(self, key: str) -> None:
        return None

    def store(self, key: str, data: bytes) -> None:
        pass

    def trim(self) -> None:
        pass


def replace_cache(patch: pytest.MonkeyPatch) -> None:
    """Neither load nor store code, until the patch is undone."""
    patch.setattr(object_files, "KERNELS", _NoCache())


@contextmanager
def no_code_cache() -> Iterator[None]:
    """Neither load nor store code meanwhile."""
    with pytest.MonkeyPatch.context() as patch:
        replace_cache(patch)
        yield
