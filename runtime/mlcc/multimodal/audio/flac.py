"""FLAC by libmlcc_executor (`runtime/native/src/multimodal/flac.cc`): samples in pieces."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import NamedTuple

from mlcc.util import executor_library


class Stream(NamedTuple):
    """What a file says of itself."""

    rate: int
    """Samples a second."""
    channels: int
    samples: int
    """Of each channel; 0 = it does not say."""
    first: int
    """The byte of the first frame."""


class FlacFile:
    """A file in memory. Raises ValueError for what is no FLAC, or damaged, and DeviceError where
    libmlcc_executor was not built."""

    def __init__(self, data: bytes) -> None:
        self._module, self._data = executor_library.load(), data
        try:
            self.stream = Stream(*self._module.flac_stream(data))
        except self._module.Failed as error:
            raise ValueError(error.args[-1]) from error

    def pieces(self, most: int) -> Iterator[array[float]]:
        """Mono samples of about a second, between -1 and 1: the means of the channels. Raises
        ValueError where a frame is damaged or missing, or behind `most` samples."""
        stream, place, found = self.stream, self.stream.first, 0
        while place < len(self._data) and not 0 < stream.samples <= found:
            try:
                made, place = self._module.flac(self._data, place, max(1, self._wanted(found)))
            except self._module.Failed as error:
                raise ValueError(error.args[-1]) from error
            piece = array("f", bytes(made))
            found += len(piece)
            if found > most:
                raise ValueError(f"it has more than {most:,} samples")
            yield piece
        if found < stream.samples:
            raise ValueError(f"it ends after {found:,} of {stream.samples:,} samples")

    def _wanted(self, found: int) -> int:
        """Samples of the next piece."""
        stream = self.stream
        return min(stream.rate, stream.samples - found) if stream.samples else stream.rate
