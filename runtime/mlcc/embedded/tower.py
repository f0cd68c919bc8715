"""The towers of a model in a tab, of images and of sound: further executors on the page's GPU."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from mlcc.artifact.manifest import Manifest
from mlcc.artifact.schema import AudioInfo, AudioInputInfo, VisionInfo
from mlcc.embedded.bridge import to_bytes, to_python, typed_array
from mlcc.embedded.executor import JsExecutor
from mlcc.embedded.planning import capacity_of
from mlcc.engine.alignment import Alignment
from mlcc.engine.batch.batch import BatchWriter, Capacity
from mlcc.engine.batch.executor import no_alignment
from mlcc.engine.request import AudioClip, AudioWindow, ImageTile
from mlcc.errors import ArtifactError, UnsupportedError
from mlcc.model.audio_tower import ClipStep, WindowStep
from mlcc.model.model import ModelText
from mlcc.model.vision_tower import TileStep
from mlcc.multimodal.packing import ImageParts


class TabTowers:
    """The towers of a model whose page opened `ports` (`TowerPort` in web/src/worker/python.ts):
    their rows are computed by `encode`. Raises ArtifactError."""

    def __init__(self, text: ModelText, ports: Iterable[Any]) -> None:
        heard, self._audio = text.audio or text.audio_input, text.audio
        self._seeing: TabTower | None = None
        self._hearing: TabTower | None = None
        self.images: Any = None
        """The page's `ImagePort`; None = it opened no vision tower."""
        self.sound: Any = None
        """The page's `SoundPort`; None = it opened no audio tower."""
        for port in ports:
            manifest = Manifest.from_bytes(to_bytes(port.manifest))
            sees = manifest.encoder is not None and manifest.encoder.task == "vision"
            if (info := text.vision if sees else heard) is None:
                continue
            made = TabTower(manifest, port.plan, port.executor, info, port.images)
            if sees:
                self._seeing, self.images = made, port.images
            else:
                self._hearing, self.sound = made, port.sound

    async def token_rows(
        self, alignment: Alignment, executor: JsExecutor, capacity: Capacity
    ) -> tuple[int, ...]:
        """The row of its window at which each token of an answer begins, as
        `mlcc.model.alignment.token_rows`. executor, capacity: the model's. Raises UnsupportedError,
        DeviceError."""
        if (info := self._audio) is None or not info.alignment_heads:
            raise no_alignment()
        width = info.alignment_heads * info.rows
        batches = alignment.batches(capacity)
        weights = b"".join([await executor.alignment(batch, width) for batch in batches])
        given, used = typed_array()(memoryview(weights)), min(alignment.rows, info.rows)
        sizes = len(alignment.tokens), info.alignment_heads, info.rows, used
        return tuple(to_python(self.sound.tokenRows(given, *sizes)).tolist())

    async def encode(self, tile: ImageTile | AudioWindow | AudioClip) -> bytes | None:
        """As `TabTower.encode`. Raises UnsupportedError without a tower of this kind."""
        tower = self._seeing if isinstance(tile, ImageTile) else self._hearing
        if tower is None:
            raise UnsupportedError("the model was opened without its tower")
        return await tower.encode(tile)


class TabTower:
    """One tower, whose rows are computed a tile of an image, or a window or a clip of sound, a
    call."""

    def __init__(
        self,
        manifest: Manifest,
        plan: str,
        executor: Any,
        info: VisionInfo | AudioInfo | AudioInputInfo,
        images: Any,
    ) -> None:
        """`manifest` and `plan`: the tower's own; images: the page's `ImagePort`. Raises
        ArtifactError."""
        if manifest.encoder is None:
            raise ArtifactError(f"{info.folder}: is no tower; compile the model again")
        self._capacity = capacity_of(manifest, json.loads(plan))
        self._executor, self._info = JsExecutor(executor), info
        self._images = images
        self._parts: ImageParts | None = None

    async def encode(self, tile: ImageTile | AudioWindow | AudioClip) -> bytes | None:
        """The rows of a window or a clip of sound, f32[tile.rows, width], or as
        `VisionTower.encode` of an image. Raises DeviceError, and UnsupportedError for what is
        larger than a step."""
        if isinstance(tile, AudioClip):
            assert isinstance(self._info, AudioInputInfo)
            return await self._encode(ClipStep(tile, self._info, self._capacity))
        if isinstance(tile, AudioWindow):
            assert isinstance(self._info, AudioInfo)
            return await self._encode(WindowStep(tile, self._info, self._capacity))
        assert isinstance(self._info, VisionInfo)
        if self._parts is None or not self._parts.is_of(tile):
            self._parts = ImageParts(tile, self._info, self._resize_rows)
        parts = self._parts
        step = TileStep(parts.next_tile, self._info, self._capacity)
        found = parts.add(await self._encode(step))
        self._parts = None if found is not None else parts
        return found

    async def _encode(self, step: TileStep | WindowStep | ClipStep) -> bytes:
        executor = self._executor
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
