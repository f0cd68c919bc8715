"""The vision tower of a model: computes the rows that stand for an image in a prompt.

A tile's patches are written to the tower's embeddings, one step computes them, and its rows are
read back. `TileStep` is what goes in and comes out, on any host; `VisionTower` runs it
synchronously, and the driver calls it between the language model's steps.
"""

from __future__ import annotations

from typing import Protocol

from mlcc.artifact.schema import VisionInfo
from mlcc.engine.batch.batch import Batch, BatchWriter, Capacity, PageList, int32
from mlcc.engine.batch.executor import EncoderExecutor, Executor
from mlcc.engine.request import ImageTile
from mlcc.errors import UnsupportedError
from mlcc.multimodal.packing import ImageParts
from mlcc.multimodal.patches import PatchGrid, class_columns, levels_of, patch_rows, with_taps


class TowerExecutor(Executor, EncoderExecutor, Protocol):
    """An executor that reads embeddings and returns rows."""


class TileStep:
    """The step of a tower that computes one tile. Raises UnsupportedError for a tile larger than a
    step."""

    def __init__(self, tile: ImageTile, info: VisionInfo, capacity: Capacity) -> None:
        side = info.patch_size
        self._block, self._capacity = info.merge_size**2, capacity
        self._windows = bool(info.window_size)
        self.patches = tile.rows * self._block
        self.tokens = self.patches + info.class_row
        """Of the step: the tile's patches, and the tower's class token behind them."""
        if self.tokens > capacity.max_step_tokens:
            raise UnsupportedError(
                f"an image of {self.patches} patches, and the tower was compiled for "
                f"{capacity.max_step_tokens}; send a smaller image"
            )
        window = info.window_size // (side * info.merge_size)
        size = tile.height // side, tile.width // side
        self._grid = PatchGrid(*size, info.merge_size, window)
        rows = patch_rows(tile.pixels, tile.width, side, self._grid, levels_of(info))
        if info.position_grid:
            rows = with_taps(rows, self._grid.position_taps(info.position_grid))
        if info.position_axes:
            rows = with_taps(rows, self._grid.axis_taps(info.position_axes))
        self.embeddings = rows + bytes(len(rows) // self.patches * info.class_row)
        """Of the tokens, for the first slots of the tower's embeddings."""

    def batch(self, writer: BatchWriter) -> Batch:
        """The step, once the embeddings are there."""
        capacity = self._capacity
        first = capacity.vocab_size
        ids = int32(range(first, first + self.tokens))
        columns = self._grid.columns if capacity.layout.token_columns else {}
        if columns and self.tokens > self.patches:
            columns = class_columns(columns)
        writer.sequence(ids, 0, first_pages(capacity, self.tokens), columns=columns)
        for row in range(0, self.patches, self._block):
            writer.row(row)
        return writer.finish()

    def rows(self, found: bytes) -> bytes:
        """The rows of the tile, from the step's result: row by row of the image, if the tower has
        them in the order of its windows."""
        raster = self._grid.raster
        if not self._windows:
            return found
        size, parts = len(found) // len(raster), [b""] * len(raster)
        for i, at in enumerate(raster):
            parts[at] = found[i * size : (i + 1) * size]
        return b"".join(parts)


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
        self._info, self._width = info, width
        self._parts: ImageParts | None = None

    def encode(self, tile: ImageTile) -> bytes | None:
        """The rows of a tile, f32[tile.rows, width]; of an image of several, one tile is computed,
        and None is returned before the last. Raises DeviceError, and UnsupportedError for a tile
        larger than a step."""
        if self._parts is None or not self._parts.is_of(tile):
            self._parts = ImageParts(tile, self._info)
        parts = self._parts
        found = parts.add(self._encode(parts.next_tile))
        self._parts = None if found is not None else parts
        return found

    def _encode(self, tile: ImageTile) -> bytes:
        executor = self._executor
        step = TileStep(tile, self._info, executor.capacity)
        executor.write_embeddings(range(step.tokens), step.embeddings)
        batch = step.batch(BatchWriter(executor.capacity.layout, executor.step_buffer()))
        return step.rows(executor.vectors(batch, self._width).tobytes())

    def close(self) -> None:
        """Free the device's memory."""
        self._executor.close()


def first_pages(capacity: Capacity, tokens: int) -> list[PageList]:
    """The first pages of each group: a tower keeps nothing between steps."""
    return [PageList(int32(range(-(-tokens // group.page_size)))) for group in capacity.groups]
