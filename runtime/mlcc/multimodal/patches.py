"""A tile's pixels as rows of its vision tower: one for each patch. Standard library only."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from functools import cache
from struct import pack, unpack

from mlcc.artifact.schema import VisionInfo

_HIGH = tuple(bytes(pack("<f", value)[i] for value in range(256)) for i in (2, 3))
"""The two high bytes of a pixel's value as a float32. The low ones are 0: 8 bits fit the rest."""


class PatchGrid:
    """The patches of an image of rows x columns of them, in the order of merge blocks: block after
    block, row by row in each. With a window, in blocks, the blocks of a window of window x window
    come one after another (Qwen2.5-VL; Bai et al., 2025); windows at the edges are smaller."""

    def __init__(self, rows: int, columns: int, merge: int, window: int = 0) -> None:
        self._merge, self._size = merge, (rows, columns)
        high, wide = rows // merge, columns // merge
        step = window or max(high, wide, 1)
        windows = [
            [
                (y, x)
                for y in range(top, min(top + step, high))
                for x in range(left, min(left + step, wide))
            ]
            for top in range(0, high, step)
            for left in range(0, wide, step)
        ]
        self.blocks = [block for blocks in windows for block in blocks]
        """Row and column of each merge block."""
        self.raster = [y * wide + x for y, x in self.blocks]
        """The number of each block, counted row by row."""
        self._windows = [len(blocks) * merge**2 for blocks in windows]

    @property
    def patches(self) -> list[tuple[int, int]]:
        """Row and column of each patch."""
        inside = [(y, x) for y in range(self._merge) for x in range(self._merge)]
        places = [(y * self._merge, x * self._merge) for y, x in self.blocks]
        return [(top + y, left + x) for top, left in places for y, x in inside]

    def position_taps(self, side: int) -> list[bytes]:
        """f32[8] of each patch: the four rows of a table of side x side positions between which it
        lies once corners are on corners (bilinear; Qwen3-VL), and their weights."""
        down, across = (_axis_taps(count, side) for count in self._size)
        found = []
        for y, x in self.patches:
            taps = [(i * side + j, a * b) for i, a in down[y] for j, b in across[x]]
            found.append(pack("<8f", *(i for i, _ in taps), *(weight for _, weight in taps)))
        return found

    def axis_taps(self, side: int) -> list[bytes]:
        """f32[4] of each patch: its rows of two tables of `side` positions, one behind the other,
        that of its column and that of its row, and their weights (Gemma 4)."""
        return [pack("<4f", x, side + y, 1, 1) for y, x in self.patches]

    @property
    def columns(self) -> dict[str, array[int]]:
        """The step's columns of the patches, by name."""
        begin, first, last = 0, array("i"), array("i")
        for count in self._windows:
            first.extend([begin] * count)
            begin += count
            last.extend([begin - 1] * count)
        rows, columns = zip(*self.patches, strict=True)
        return {
            "position_t": array("i", [0]) * begin,
            "position_h": array("i", rows),
            "position_w": array("i", columns),
            "visible_from": first,
            "visible_until": last,
        }


def _axis_taps(count: int, side: int) -> list[list[tuple[int, float]]]:
    """Of each of `count` patches along an axis: the two positions of `side` beside it, and their
    weights."""
    found = []
    for i in range(count):
        place = i * (side - 1) / max(count - 1, 1)
        low = min(int(place), side - 1)
        found.append([(low, 1 - (place - low)), (min(low + 1, side - 1), place - low)])
    return found


def with_taps(rows: bytes, taps: list[bytes]) -> bytes:
    """Rows of pixels, each followed by its taps."""
    size = len(rows) // len(taps)
    parts = (rows[i * size : (i + 1) * size] for i in range(len(taps)))
    return b"".join(part for pair in zip(parts, taps, strict=True) for part in pair)


def class_columns(columns: dict[str, array[int]]) -> dict[str, array[int]]:
    """The step's columns for Llama 4, whose rope turns first by the column, then by the row. Both
    count from 1; the class token behind the patches has 0."""
    names = {"position_t": "position_t", "position_h": "position_w", "position_w": "position_h"}
    return {
        name: array("i", [*(place + 1 for place in columns[of]), 0]) for name, of in names.items()
    }


@cache
def levels_of(info: VisionInfo) -> Sequence[Sequence[bytes]]:
    """Of each channel the two high bytes of the number that the tower reads for a pixel, by its
    level: the level itself, or what transformers' processor of Llama 4 makes of it in bfloat16."""
    if not info.bf16_pixels:
        return (_HIGH,)
    channels = []
    for mean, std in zip(map(_bf16, info.mean), map(_bf16, info.std), strict=True):
        scaled = (_bf16(level * _float32(1 / 255)) for level in range(256))
        numbers = [pack("<f", _bf16(_bf16(each - mean) / std)) for each in scaled]
        channels.append((bytes(n[2] for n in numbers), bytes(n[3] for n in numbers)))
    return channels if len({*channels}) > 1 else channels[:1]


def _float32(value: float) -> float:
    found: float = unpack("<f", pack("<f", value))[0]
    return found


def _bf16(value: float) -> float:
    """To the nearest of 8 bits, by way of float32; of two the even one."""
    (bits,) = unpack("<I", pack("<f", value))
    rounded = bits + 0x7FFF + (bits >> 16 & 1)
    found: float = unpack("<f", pack("<I", rounded >> 16 << 16))[0]
    return found


def patch_rows(
    pixels: bytes,
    width: int,
    patch: int,
    grid: PatchGrid,
    levels: Sequence[Sequence[bytes]] = (_HIGH,),
) -> bytes:
    """f32[patches, patch * patch * 3] of uint8 RGB [height, width, 3]: patches in the grid's order,
    a patch's pixels row by row. Pixels beyond whole blocks are left out, as by a convolution
    (SmolVLM-2.2B: 384 pixels are 27 patches of 14).

    Pixels stay as they are, 0 to 255, as the tower's weights hold the processor's mean and
    deviation; or they become the `levels_of` all channels, or of each.
    """
    line, part = 3 * width, 3 * patch
    rows: list[bytes] = []
    for y, x in grid.patches:
        begin = y * patch * line + x * part
        rows += (pixels[at : at + part] for at in range(begin, begin + patch * line, line))
    joined = b"".join(rows)
    found = bytearray(4 * len(joined))
    step = len(levels)  # 1, or as many as there are channels
    for channel, tables in enumerate(levels):
        values = joined[channel::step]
        for at, table in enumerate(tables):
            found[4 * channel + 2 + at :: 4 * step] = values.translate(table)
    return bytes(found)
