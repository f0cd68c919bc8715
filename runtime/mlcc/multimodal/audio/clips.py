"""Sound in prompts: the clips that an audio tower reads, and the text that stands for them.

Follows Qwen2AudioProcessor, Qwen2_5OmniProcessor, VoxtralProcessor, Gemma3nProcessor and
Gemma4Processor of transformers. The first two read as many rows as the sound has; Qwen2-Audio hears
one clip, Qwen2.5-Omni parts of one sound after another. Voxtral fills the last of its clips with
silence. Gemma 3n and 4 hear one clip, of the frames that end within the sound; for each of Gemma
3n's the prompt has as many tokens.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import replace
from hashlib import sha256

from mlcc.artifact.schema import AudioInputInfo
from mlcc.errors import ArtifactError, InvalidRequestError
from mlcc.multimodal.audio import gemma3n
from mlcc.multimodal.audio.frames import FLOAT, HOP, RATE, SoundKernels, log_mel
from mlcc.multimodal.audio.usm import BEGIN, END, FRAMES, frame_count, usm_frames
from mlcc.util.fast_dataclass import fast_dataclass

VERSION = 1
"""Raised when features change: prefix caches must not mix both."""
PROCESSORS = ("qwen2_audio", "voxtral", "qwen2_5_omni", "gemma3n", "gemma4")
_AROUND = {"gemma4": (BEGIN, END), "gemma3n": gemma3n.AROUND}
"""What a processor writes around sound."""
_AFTER = 3
"""Frames of silence behind a sound, which its last rows read."""


@fast_dataclass(frozen=True)
class Clip:
    """What the tower reads: see `mlcc.engine.request.AudioClip`."""

    rows: int
    key: bytes
    features: bytes
    encoder_rows: int
    lines: int = 1


class AudioProcessor:
    """One model's way from samples to clips. Raises ArtifactError for an unknown one."""

    def __init__(self, info: AudioInputInfo) -> None:
        if info.processor not in PROCESSORS:
            raise ArtifactError(
                f"the model's sound needs the processor {info.processor!r:.40}; this mlcc knows "
                f"{', '.join(PROCESSORS)}: type `pip install --upgrade mlcc`"
            )
        self.info = info
        self._around = _AROUND.get(info.processor, ("", ""))
        marks = (info.audio_token, *(each.strip() for each in self._around))
        self.marks = tuple(mark for mark in marks if mark)
        """The token that a chat template writes where sound is, and those that the processor
        writes around it."""

    def text(self, clips: Sequence[Clip]) -> str:
        """What replaces the template's mark of a sound: the audio token once for each clip."""
        begin, end = self._around
        return begin + self.info.audio_token * len(clips) + end

    def clips(
        self, samples: array[float], field: str, kernels: SoundKernels | None = None
    ) -> list[Clip]:
        """The clips of a sound, samples at 16 kHz. kernels: None = those of libmlcc_executor.
        Raises InvalidRequestError that names its field for one that is too long, or too short for a
        row."""
        info, frames = self.info, -(-len(samples) // HOP)
        if len(samples) > info.most_seconds * RATE:
            raise InvalidRequestError(
                f"'{field}' lasts {len(samples) / RATE:.1f} s, and the model hears at most "
                f"{info.most_seconds} s; send it in parts",
                param=field,
                code="audio_too_long",
            )
        if info.processor == "gemma4":
            return [self._usm_clip(samples, field, kernels)]
        if info.processor == "gemma3n":
            return [self._gemma3n_clip(samples, field, kernels)]
        whole = 2 * info.clip_rows
        if info.processor == "voxtral":
            frames = -(-frames // whole) * whole
        padded = self._padded(samples, frames)
        features, _ = log_mel(padded, info.bins, kernels)
        size = FLOAT * info.bins
        made = []
        for start in range(0, frames, whole):
            count = min(frames - start, whole)
            rows = -(-count // 2)
            read = count if info.chunk_rows else min(2 * rows + 1, whole)
            if rows >= info.pool:
                made.append(self._clip(features[start * size : (start + read) * size], rows))
        if not made:
            raise _too_short(samples, field)
        return made

    def _usm_clip(
        self, samples: array[float], field: str, kernels: SoundKernels | None = None
    ) -> Clip:
        frames = frame_count(len(samples))
        if not frames:
            raise _too_short(samples, field)
        return self._clip(usm_frames(samples, self.info.bins, kernels), -(-frames // FRAMES))

    def _gemma3n_clip(
        self, samples: array[float], field: str, kernels: SoundKernels | None = None
    ) -> Clip:
        features, frames = gemma3n.gemma3n_frames(samples, self.info.bins, kernels)
        if not frames:
            raise _too_short(samples, field)
        clip = self._clip(features, -(-frames // FRAMES) + gemma3n.MARKED)
        return replace(clip, rows=self.info.clip_rows // self.info.pool)

    def _padded(self, samples: array[float], frames: int) -> array[float]:
        """The samples with silence behind them, as far as rows read; at most to where the model's
        own processor ends it, which reflects samples there."""
        most = frames if self.info.processor == "voxtral" else 100 * self.info.most_seconds
        end = min(frames + _AFTER, most) * HOP
        return samples + array("f", bytes(FLOAT * (end - len(samples))))

    def _clip(self, features: bytes, encoder_rows: int) -> Clip:
        named = f"{self.info.processor}.{VERSION} {encoder_rows} ".encode()
        key = sha256(named + features).digest()
        return Clip(encoder_rows // self.info.pool, key, features, encoder_rows)


def _too_short(samples: array[float], field: str) -> InvalidRequestError:
    return InvalidRequestError(
        f"'{field}' has {len(samples)} samples at 16 kHz, which are too few to hear",
        param=field,
        code="audio_too_short",
    )
