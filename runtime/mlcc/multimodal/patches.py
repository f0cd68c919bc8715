"""A tile's pixels as rows of its vision tower: one for each patch. Standard library only."""

from __future__ import annotations

from array import array


def patch_rows(pixels: bytes, height: int, width: int, patch: int, merge: int) -> bytes:
    """f32[patches, patch * patch * 3] of uint8 RGB [height, width, 3], whose sides are multiples of
    patch * merge: patches in the order of merge blocks, a patch's pixels row by row.

    Pixels stay as they are, 0 to 255: the tower's weights hold the processor's mean and deviation.
    """
    line, part, side = 3 * width, 3 * patch, patch * merge
    rows: list[bytes] = []
    for block_y in range(0, height, side):
        for block_x in range(0, width, side):
            for y in range(block_y, block_y + side, patch):
                for x in range(block_x, block_x + side, patch):
                    begin = y * line + 3 * x
                    rows += (
                        pixels[at : at + part] for at in range(begin, begin + patch * line, line)
                    )
    return array("f", memoryview(b"".join(rows))).tobytes()
