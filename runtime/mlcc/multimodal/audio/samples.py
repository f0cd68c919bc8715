"""Samples of a recording: those of a short one in memory, those of a long one in a temporary file,
so that an hour takes no more memory than a minute."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from typing import Protocol
from weakref import finalize

from mlcc.errors import CapacityError

IN_MEMORY = 1 << 22
"""Bytes of float32 samples that no file is made for: about a minute."""
_FLOAT = 4


class Samples(Protocol):
    """An `array` of float32 samples, or what is read like one."""

    def __len__(self) -> int: ...

    def __getitem__(self, span: slice, /) -> array[float]: ...


class StoredSamples:
    """Samples that are written once, piece by piece, and read by spans. The file has no name and
    goes with the object."""

    def __init__(self, pieces: Iterable[array[float]]) -> None:
        """Raises CapacityError where the file finds no room, and what the pieces raise."""
        from tempfile import SpooledTemporaryFile  # no tab stores samples

        self._file = SpooledTemporaryFile(IN_MEMORY)  # noqa: SIM115
        finalize(self, self._file.close)
        self._count = 0
        for piece in pieces:
            self._add(piece)

    def _add(self, piece: array[float]) -> None:
        try:
            self._file.write(piece.tobytes())
        except OSError as error:
            raise CapacityError(
                f"the samples of the recording find no room in the folder for temporary files "
                f"({error.strerror or error}); free some space, or set TMPDIR to a folder with 230 "
                "MB for each hour of sound"
            ) from error
        self._count += len(piece)

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, span: slice, /) -> array[float]:
        """A copy of the samples of a span without a step."""
        first, end, step = span.indices(self._count)
        assert step == 1
        found = array("f")
        self._file.seek(_FLOAT * first)
        found.frombytes(self._file.read(_FLOAT * max(0, end - first)))
        return found
