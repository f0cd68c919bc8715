"""Counter-based random numbers: a draw depends on the seed and the position only.

So the same seed gives the same text on every target, whatever else is in the batch and however
often the sequence was preempted. The device library samples the tokens, with the `uniform` draws
made here. Method: SplitMix64 (Steele et al., 2014), read at any index as proposed for counter-based
generators by Salmon et al. (2011).
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

_MASK = (1 << 64) - 1
_GAMMA = 0x9E3779B97F4A7C15


def mix64(value: int) -> int:
    """SplitMix64's finalizer: a bijection of 64-bit integers in which every bit affects all."""
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)


def derive_seed(base: int, counter: int) -> int:
    """The 64-bit seed of request number `counter`, if the request has none."""
    return mix64((mix64((base + _GAMMA) & _MASK) + (counter + 1) * _GAMMA) & _MASK)


def stream_of(seed: int) -> int:
    """The stream of a seed, computed once per sequence; any integer is a seed."""
    return mix64((seed + _GAMMA) & _MASK)


def uniform(stream: int, index: int) -> float:
    """The draw in [0, 1) of a seed's `stream` for the token at position `index`.

    It has 24 bits, so that rounding to float32 is exact and never gives 1.
    """
    return (mix64((stream + (index + 1) * _GAMMA) & _MASK) >> 40) * 2.0**-24


class Draws:
    """The draws of many streams, for consecutive positions of each.

    All lanes are in one integer, 128 bits apart: the product of 64 bits and a constant stays within
    its lane, so each operation of `mix64` is done once for all.
    """

    def __init__(self, streams: Sequence[int], indexes: Sequence[int]) -> None:
        """indexes: of each stream's first draw."""
        ones = _lanes([1] * len(streams))
        firsts = zip(streams, indexes, strict=True)
        self._state = _lanes([(stream + (i + 1) * _GAMMA) & _MASK for stream, i in firsts])
        self._mask, self._gamma, self._top = ones * _MASK, ones * _GAMMA, ones * ((1 << 24) - 1)
        self._bytes = 16 * len(streams)

    def next(self) -> array[float]:
        """`uniform` of every stream at its index, as float32; the next call is for the next
        index."""
        mask, v = self._mask, self._state
        self._state = (v + self._gamma) & mask
        v = ((v ^ (v >> 30 & mask)) * 0xBF58476D1CE4E5B9) & mask
        v = ((v ^ (v >> 27 & mask)) * 0x94D049BB133111EB) & mask
        v = (v ^ (v >> 31)) >> 40 & self._top
        words = memoryview(v.to_bytes(self._bytes, "little")).cast("I")
        return array("f", [word * 2.0**-24 for word in words[::4].tolist()])


def _lanes(values: Sequence[int]) -> int:
    return int.from_bytes(b"".join(value.to_bytes(16, "little") for value in values), "little")
