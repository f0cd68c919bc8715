"""The vision tower of a model: computes the rows that stand for an image in a prompt.

A tile's patches are written to the tower's embeddings, one step computes them, and its rows are
read back. Synchronous: the driver calls it between the language model's steps.
"""

from __future__ import annotations

from array import array
from typing import Protocol

from mlcc.engine.batch.batch import BatchWriter, Capacity, PageList, int32
from mlcc.engine.batch.executor import EncoderExecutor, Executor
from mlcc.engine.request import ImageTile
from mlcc.errors import UnsupportedError
from mlcc.multimodal.patches import patch_places, patch_rows


class TowerExecutor(Executor, EncoderExecutor, Protocol):
    """An executor that reads embeddings and returns rows."""


class VisionTower:
    """One tower on its device. patch_size, merge_size: as in `VisionInfo`; width: numbers of a row.

    Raises UnsupportedError for an executor that cannot return rows.
    """

    def __init__(self, executor: Executor, patch_size: int, merge_size: int, width: int) -> None:
        if not isinstance(executor, EncoderExecutor):
            raise UnsupportedError(
                "this device computes no rows of a vision tower yet; compile the model for cpu or "
                "vulkan, or with --no-vision"
            )
        self._executor: TowerExecutor = executor
        self._patch_size, self._merge_size, self._width = patch_size, merge_size, width

    def encode(self, tile: ImageTile) -> bytes:
        """The rows of a tile, f32[tile.rows, width]. Raises DeviceError, and UnsupportedError for a
        tile larger than a step."""
        executor, capacity = self._executor, self._executor.capacity
        rows = patch_rows(tile.pixels, tile.height, tile.width, self._patch_size, self._merge_size)
        block = self._merge_size**2
        patches = tile.rows * block
        if patches > capacity.max_step_tokens:
            raise UnsupportedError(
                f"an image of {patches} patches, and the tower was compiled for "
                f"{capacity.max_step_tokens}; send a smaller image"
            )
        executor.write_embeddings(range(patches), rows)
        writer = BatchWriter(capacity.layout, executor.step_buffer())
        first = capacity.vocab_size
        ids, pages = int32(range(first, first + patches)), _pages(capacity, patches)
        writer.sequence(ids, 0, pages, columns=self._places(tile))
        for row in range(0, patches, block):
            writer.row(row)
        found: bytes = executor.vectors(writer.finish(), self._width).tobytes()
        return found

    def _places(self, tile: ImageTile) -> dict[str, array[int]]:
        """The columns of a tower that turns by row and column of a patch."""
        if not self._executor.capacity.layout.token_columns:
            return {}
        size = tile.height // self._patch_size, tile.width // self._patch_size
        rows, columns = patch_places(*size, self._merge_size)
        return {"position_t": int32([0]) * len(rows), "position_h": rows, "position_w": columns}

    def close(self) -> None:
        """Free the device's memory."""
        self._executor.close()


def _pages(capacity: Capacity, tokens: int) -> list[PageList]:
    """The first pages of each group: a tower keeps nothing between steps."""
    return [PageList(int32(range(-(-tokens // group.page_size)))) for group in capacity.groups]
