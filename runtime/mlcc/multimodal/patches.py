"""A tile's pixels as rows of its vision tower: one for each patch. Standard library only."""

from __future__ import annotations

from array import array
from struct import pack

_HIGH = tuple(bytes(pack("<f", value)[i] for value in range(256)) for i in (2, 3))
"""The two high bytes of a pixel's value as a float32. The low ones are 0: 8 bits fit the rest."""


def patch_places(rows: int, columns: int, merge: int) -> tuple[array[int], array[int]]:
    """Row and column of each patch of an image of rows x columns patches, in the order of merge
    blocks."""
    places = [
        (y, x)
        for block_y in range(0, rows, merge)
        for block_x in range(0, columns, merge)
        for y in range(block_y, block_y + merge)
        for x in range(block_x, block_x + merge)
    ]
    return array("i", [y for y, _ in places]), array("i", [x for _, x in places])


def patch_rows(pixels: bytes, height: int, width: int, patch: int, merge: int) -> bytes:
    """f32[patches, patch * patch * 3] of uint8 RGB [height, width, 3]: patches in the order of
    merge blocks, a patch's pixels row by row. Pixels beyond whole blocks are left out, as by a
    convolution (SmolVLM-2.2B: 384 pixels are 27 patches of 14).

    Pixels stay as they are, 0 to 255: the tower's weights hold the processor's mean and deviation.
    """
    line, part, side = 3 * width, 3 * patch, patch * merge
    rows: list[bytes] = []
    for block_y in range(0, height - side + 1, side):
        for block_x in range(0, width - side + 1, side):
            for y in range(block_y, block_y + side, patch):
                for x in range(block_x, block_x + side, patch):
                    begin = y * line + 3 * x
                    rows += (
                        pixels[at : at + part] for at in range(begin, begin + patch * line, line)
                    )
    joined = b"".join(rows)
    found = bytearray(4 * len(joined))
    found[2::4], found[3::4] = (joined.translate(table) for table in _HIGH)
    return bytes(found)
