"""The vision tower of a model: computes the rows that stand for an image in a prompt.

A tile's patches are written to the tower's embeddings, one step computes them, and its rows are
read back. Synchronous: the driver calls it between the language model's steps.
"""

from __future__ import annotations

from typing import Protocol

from mlcc.artifact.schema import VisionInfo
from mlcc.engine.batch.batch import BatchWriter, Capacity, PageList, int32
from mlcc.engine.batch.executor import EncoderExecutor, Executor
from mlcc.engine.request import ImageTile
from mlcc.errors import UnsupportedError
from mlcc.multimodal.patches import PatchGrid, patch_rows, with_taps


class TowerExecutor(Executor, EncoderExecutor, Protocol):
    """An executor that reads embeddings and returns rows."""


class VisionTower:
    """One tower on its device. width: numbers of a row.

    Raises UnsupportedError for an executor that cannot return rows.
    """

    def __init__(self, executor: Executor, info: VisionInfo, width: int) -> None:
        if not isinstance(executor, EncoderExecutor):
            raise UnsupportedError(
                "this device computes no rows of a vision tower yet; compile the model for cpu or "
                "vulkan, or with --no-vision"
            )
        self._executor: TowerExecutor = executor
        self._patch_size, self._merge_size, self._width = info.patch_size, info.merge_size, width
        self._position_grid = info.position_grid
        self._window = info.window_size // (info.patch_size * info.merge_size)

    def encode(self, tile: ImageTile) -> bytes:
        """The rows of a tile, f32[tile.rows, width]. Raises DeviceError, and UnsupportedError for a
        tile larger than a step."""
        executor, capacity = self._executor, self._executor.capacity
        side = self._patch_size
        size = tile.height // side, tile.width // side
        grid = PatchGrid(*size, self._merge_size, self._window)
        rows = patch_rows(tile.pixels, tile.width, side, grid)
        if self._position_grid:
            rows = with_taps(rows, grid.position_taps(self._position_grid))
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
        columns = grid.columns if capacity.layout.token_columns else {}
        writer.sequence(ids, 0, pages, columns=columns)
        for row in range(0, patches, block):
            writer.row(row)
        found: bytes = executor.vectors(writer.finish(), self._width).tobytes()
        return self._in_rows(found, grid) if self._window else found

    def _in_rows(self, found: bytes, grid: PatchGrid) -> bytes:
        """Rows in the order of windows -> row by row of the image."""
        size, parts = 4 * self._width, [b""] * len(grid.raster)
        for i, at in enumerate(grid.raster):
            parts[at] = found[i * size : (i + 1) * size]
        return b"".join(parts)

    def close(self) -> None:
        """Free the device's memory."""
        self._executor.close()


def _pages(capacity: Capacity, tokens: int) -> list[PageList]:
    """The first pages of each group: a tower keeps nothing between steps."""
    return [PageList(int32(range(-(-tokens // group.page_size)))) for group in capacity.groups]
