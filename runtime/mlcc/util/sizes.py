"""Formats numbers of bytes for people."""

from __future__ import annotations

_UNITS = (("GB", 10**9), ("MB", 10**6), ("kB", 10**3))


def size(count: int) -> str:
    """`count` bytes in the largest unit that leaves a digit before the point: "1.50 MB"."""
    return apart(count)[0]


def apart(*counts: int) -> tuple[str, ...]:
    """`size` of each count, with enough digits to distinguish different counts.

    This avoids messages such as "needs 4.00 GB and 4.00 GB are free".
    """
    texts: tuple[str, ...] = ()
    for digits in range(2, 10):
        texts = tuple(_text(count, digits) for count in counts)
        if len(set(texts)) == len(set(counts)):
            break
    return texts


def _text(count: int, digits: int) -> str:
    for unit, scale in _UNITS:
        if count >= scale:
            return f"{count / scale:.{digits}f} {unit}"
    return f"{count} B"
