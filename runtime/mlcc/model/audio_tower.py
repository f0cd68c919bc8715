"""The audio tower of a model: computes the rows of a window of sound, to which a Whisper's decoder
attends, or of a clip, which stand for tokens of a language model's prompt."""

from __future__ import annotations

from abc import ABC, abstractmethod
from array import array
from collections.abc import Sequence
from typing import Any

from mlcc.artifact.schema import AudioInfo, AudioInputInfo
from mlcc.engine.batch.batch import Batch, BatchWriter, Capacity, int32
from mlcc.engine.batch.executor import EncoderExecutor, Executor
from mlcc.engine.request import AudioClip, AudioWindow, ImageTile
from mlcc.errors import UnsupportedError
from mlcc.model.vision_tower import TowerExecutor, VisionTower, first_pages
from mlcc.multimodal.audio import gemma3n
from mlcc.multimodal.audio.frames import FLOAT, row_bytes, tower_rows
from mlcc.multimodal.audio.usm import FRAMES, usm_rows


class WindowStep:
    """The step of a tower that computes one window, on any host."""

    def __init__(self, window: AudioWindow, info: AudioInfo, capacity: Capacity) -> None:
        self.tokens, self._capacity = info.rows, capacity
        self.embeddings = tower_rows(window.features, info.bins)
        """Of the tokens, for the first slots of the tower's embeddings."""

    def batch(self, writer: BatchWriter) -> Batch:
        """The step, once the embeddings are there."""
        first, count = self._capacity.vocab_size, self.tokens
        writer.sequence(int32(range(first, first + count)), 0, first_pages(self._capacity, count))
        for row in range(count):
            writer.row(row)
        return writer.finish()

    def rows(self, found: bytes) -> bytes:
        """The rows of the window, from the step's result."""
        return found


class ClipStep:
    """The step of a tower that computes one clip, on any host. Raises UnsupportedError for a clip
    longer than a step."""

    def __init__(self, clip: AudioClip, info: AudioInputInfo, capacity: Capacity) -> None:
        count = self.tokens = clip.encoder_rows
        if count > (most := capacity.max_step_tokens):
            per_second = 100 // (FRAMES if info.processor.startswith("gemma") else 2)
            raise UnsupportedError(
                f"a clip of {count / per_second:.0f} s, and the tower was compiled for "
                f"{most / per_second:.0f} s; send less sound"
            )
        self._capacity, self._chunk = capacity, info.chunk_rows
        self._wanted: Sequence[int] = range(0, clip.rows * info.pool, info.pool)
        if info.processor == "gemma3n":
            self._wanted = gemma3n.gemma3n_wanted(count, clip.rows, info.pool)
        self.embeddings = _tower_input(clip.features, count, info)
        """Of the tokens, for the first slots of the tower's embeddings."""

    def batch(self, writer: BatchWriter) -> Batch:
        """The step, once the embeddings are there. A row is of the first of those that are
        joined."""
        first, count = self._capacity.vocab_size, self.tokens
        columns = _windows(count, self._chunk) if self._chunk else {}
        pages = first_pages(self._capacity, count)
        writer.sequence(int32(range(first, first + count)), 0, pages, columns=columns)
        for row in self._wanted:
            writer.row(row)
        return writer.finish()

    def rows(self, found: bytes) -> bytes:
        """The rows of the clip, from the step's result."""
        return found


class _Tower(ABC):
    """One tower on its device. width: numbers of a row.

    Raises UnsupportedError for an executor that cannot return rows.
    """

    def __init__(self, executor: Executor, width: int) -> None:
        if not isinstance(executor, EncoderExecutor):
            raise UnsupportedError(
                "this device computes no rows of an audio tower yet; compile the model for cpu or "
                "vulkan"
            )
        self._executor: TowerExecutor = executor
        self._width = width

    @abstractmethod
    def encode(self, heard: Any) -> bytes:
        """The rows of a window or a clip, f32[rows, width]. Raises DeviceError."""

    def _computed(self, step: WindowStep | ClipStep) -> bytes:
        executor = self._executor
        executor.write_embeddings(range(step.tokens), step.embeddings)
        batch = step.batch(BatchWriter(executor.capacity.layout, executor.step_buffer()))
        return step.rows(executor.vectors(batch, self._width).tobytes())

    def close(self) -> None:
        """Free the device's memory."""
        self._executor.close()


class AudioTower(_Tower):
    """Of a Whisper: the keys and values of a window."""

    def __init__(self, executor: Executor, info: AudioInfo, width: int) -> None:
        super().__init__(executor, width)
        self._info = info

    def encode(self, window: AudioWindow) -> bytes:
        """The rows of a window, f32[window.rows, width]. Raises DeviceError."""
        return self._computed(WindowStep(window, self._info, self._executor.capacity))


class ClipTower(_Tower):
    """Of a language model: rows of its prompt."""

    def __init__(self, executor: Executor, info: AudioInputInfo, width: int) -> None:
        super().__init__(executor, width)
        self._info = info

    def encode(self, clip: AudioClip) -> bytes:
        """The rows of a clip, f32[clip.rows, width]. Raises DeviceError, and UnsupportedError for a
        clip longer than a step."""
        return self._computed(ClipStep(clip, self._info, self._executor.capacity))


class Towers:
    """The vision tower and the audio tower of a model that has both."""

    def __init__(self, towers: Sequence[VisionTower | AudioTower | ClipTower]) -> None:
        self._towers = towers

    def encode(self, tile: Any) -> bytes | None:
        """As the tower of this kind of tile does."""
        seen = isinstance(tile, ImageTile)
        tower = next(each for each in self._towers if isinstance(each, VisionTower) == seen)
        return tower.encode(tile)

    def close(self) -> None:
        """Free the device's memory."""
        for tower in self._towers:
            tower.close()


def _tower_input(features: bytes, count: int, info: AudioInputInfo) -> bytes:
    """What the tower reads of a clip: `count` rows."""
    if info.processor == "gemma3n":
        return gemma3n.gemma3n_rows(features, info.bins)
    if info.processor == "gemma4":
        return usm_rows(features, info.bins)
    return _frame_rows(features, count, info)


def _frame_rows(features: bytes, count: int, info: AudioInputInfo) -> bytes:
    """The first `count` rows of frames, each part of the clip by itself."""
    part = 2 * (info.chunk_rows or count + 1) * FLOAT * info.bins  # bytes
    chunks = (features[at : at + part] for at in range(0, len(features), part))
    rows = b"".join(tower_rows(chunk, info.bins) for chunk in chunks)
    return rows[: count * row_bytes(info.bins)]


def _windows(count: int, chunk: int) -> dict[str, array[int]]:
    """Columns of the rows, which attend within their chunk."""
    begins = [row - row % chunk for row in range(count)]
    ends = [min(begin + chunk, count) - 1 for begin in begins]
    return {"visible_from": int32(begins), "visible_until": int32(ends)}
