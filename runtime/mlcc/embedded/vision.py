"""Images in a tab: the page decodes and resizes them, and a second executor runs the vision tower.

JavaScript's parts are `web/src/multimodal/` and the tower's `web/src/device/executor.ts`.
"""

from __future__ import annotations

import json
from typing import Any

from mlcc.artifact.manifest import Manifest
from mlcc.artifact.schema import VisionInfo
from mlcc.embedded.bridge import to_bytes, to_python, typed_array
from mlcc.embedded.executor import JsExecutor
from mlcc.embedded.planning import capacity_of
from mlcc.engine.batch.batch import BatchWriter
from mlcc.engine.request import ImageTile
from mlcc.errors import ArtifactError
from mlcc.model.vision_tower import TileStep
from mlcc.multimodal.header import EncodedImage, bad_image, read_header
from mlcc.multimodal.packing import ImageParts
from mlcc.multimodal.processors.processor import Processor
from mlcc.multimodal.prompt import PreparedImage, planned


class TabTower:
    """The vision tower on the page's GPU."""

    def __init__(
        self, manifest: Any, plan: str, executor: Any, info: VisionInfo, images: Any
    ) -> None:
        """`manifest` and `plan`: the tower's own; images: the page's `ImagePort`. Raises
        ArtifactError."""
        read = Manifest.from_bytes(to_bytes(manifest))
        if read.encoder is None:
            raise ArtifactError(f"{info.folder}: is no vision tower; compile the model again")
        self._capacity = capacity_of(read, json.loads(plan))
        self._executor, self._info = JsExecutor(executor), info
        self._images = images
        self._parts: ImageParts | None = None

    async def encode(self, tile: ImageTile) -> bytes | None:
        """As `VisionTower.encode`."""
        if self._parts is None or not self._parts.is_of(tile):
            self._parts = ImageParts(tile, self._info, self._resize_rows)
        parts = self._parts
        found = parts.add(await self._encode(parts.next_tile))
        self._parts = None if found is not None else parts
        return found

    async def _encode(self, tile: ImageTile) -> bytes:
        executor = self._executor
        step = TileStep(tile, self._info, self._capacity)
        executor.write_embeddings(range(step.tokens), step.embeddings)
        batch = step.batch(BatchWriter(self._capacity.layout))
        ticket = executor.submit(executor.pack(batch))
        return step.rows((await executor.vectors(ticket)).tobytes())

    def _resize_rows(
        self, rows: bytes, lines: int, columns: int, to_lines: int, to_columns: int
    ) -> bytes:
        given = typed_array()(memoryview(rows))
        made = self._images.resizeRows(given, lines, columns, to_lines, to_columns)
        return to_bytes(made)


async def prepare_in_tab(js: Any, processor: Processor, image: EncodedImage) -> PreparedImage:
    """The tiles of an image, which the page decodes and resizes (`ImagePort` in
    web/src/worker/python.ts). Raises InvalidRequestError for one that cannot be read."""
    header = read_header(image)
    data = typed_array()(memoryview(image.data))
    try:
        decoded = await js.decode(data, f"image/{header.format.lower()}")
    except Exception as error:
        fault = f"is a damaged {header.format} file, or one that this browser does not decode"
        raise bad_image(image.field, fault) from error
    size = int(decoded.width), int(decoded.height)
    if sorted(size) != sorted((header.width, header.height)):  # EXIF may turn it
        raise bad_image(image.field, "is of another size than its header says")
    plan = planned(processor, image, size)
    tiles = [[tile.box, tile.size, tile.of_original] for tile in plan.tiles]
    asked = {"resizes": plan.resizes, "tiles": tiles, "fill": plan.fill}
    pixels = to_python(decoded.tiles(json.dumps(asked), processor.info.resample))
    return PreparedImage(plan, processor.tiles_of(plan, [bytes(rgb) for rgb in pixels]))
