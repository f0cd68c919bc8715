"""WAV: the samples of a RIFF or RF64 file as integers or floats (Microsoft's WAVEFORMATEX and
WAVEFORMATEXTENSIBLE, EBU Tech 3306)."""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Callable, Iterator
from math import isfinite
from os import SEEK_CUR, SEEK_END
from typing import IO, NamedTuple

_PCM, _FLOATS, _EXTENSIBLE = 1, 3, 0xFFFE
_TO_THE_END = 0xFFFFFFFF
"""The size of samples that a program wrote before it knew it, and of those of an RF64 file."""


class Wave(NamedTuple):
    """A file at its first sample."""

    file: IO[bytes]
    rate: int
    """Samples a second."""
    channels: int
    frames: int
    """Samples of each channel."""
    width: int
    """Bytes of a sample."""
    values: Callable[[bytes], array[float]]
    """Bytes of samples -> numbers between -1 and 1."""

    def pieces(self) -> Iterator[array[float]]:
        """Samples of all channels in turns, a second at a time. Raises ValueError for floats that
        are no numbers."""
        size = self.channels * self.width
        left = self.frames
        while left > 0 and (data := self.file.read(size * min(left, self.rate))):
            left -= self.rate
            yield self.values(data[: len(data) // size * size])


def open_wave(file: IO[bytes]) -> Wave | None:
    """The file, which begins as a WAV does; None = its samples are of another kind, such as A-law.
    Raises ValueError and struct.error for a damaged one."""
    form, size = _to_samples(file)
    tag, channels, rate, _, block, bits = struct.unpack("<HHIIHH", form[:16])
    if tag == _EXTENSIBLE:
        (tag,) = struct.unpack("<H", form[24:26])
    width = (bits + 7) // 8
    values = _VALUES.get((tag, width))
    if values is None:
        return None
    if not channels or block != channels * width:
        raise ValueError(f"it has {channels} channels of {bits} bits in {block} bytes")
    return Wave(file, rate, channels, size // block, width, values)


def _to_samples(file: IO[bytes]) -> tuple[bytes, int]:
    """Read up to the samples: what describes them, and their bytes."""
    end = file.seek(0, SEEK_END)
    file.seek(12)
    form, wide = b"", 0
    while True:
        name, size = struct.unpack("<4sI", file.read(8))
        if name == b"data":
            break
        start = file.tell()
        if name == b"fmt ":
            form = file.read(size)
        elif name == b"ds64":
            _, wide = struct.unpack("<QQ", file.read(16))
        file.seek(start + size + size % 2)
    if size == _TO_THE_END and wide:
        size = wide
    return form, min(size, end - file.seek(0, SEEK_CUR))


def _little(code: str, raw: bytes) -> array[float]:
    values: array[float] = array(code, raw)
    if sys.byteorder == "big":
        values.byteswap()
    return values


def _of_ints(code: str, scale: float) -> Callable[[bytes], array[float]]:
    return lambda raw: array("f", [value * scale for value in _little(code, raw)])


def _of_24_bits(raw: bytes) -> array[float]:
    """As integers of 32 bits, with a 0 before the lowest byte."""
    wide = bytearray(len(raw) // 3 * 4)
    for byte in range(3):
        wide[byte + 1 :: 4] = raw[byte::3]
    return _of_ints("i", 2.0**-31)(bytes(wide))


def _of_floats(code: str) -> Callable[[bytes], array[float]]:
    def found(raw: bytes) -> array[float]:
        values = _little(code, raw)
        if not isfinite(sum(values)):
            raise ValueError("it has samples that are no numbers")
        return array("f", values)

    return found


_VALUES: dict[tuple[int, int], Callable[[bytes], array[float]]] = {
    (_PCM, 1): lambda raw: array("f", [(value - 128) / 128 for value in raw]),
    (_PCM, 2): _of_ints("h", 2.0**-15),
    (_PCM, 3): _of_24_bits,
    (_PCM, 4): _of_ints("i", 2.0**-31),
    (_FLOATS, 4): _of_floats("f"),
    (_FLOATS, 8): _of_floats("d"),
}
"""By kind and bytes of a sample."""
