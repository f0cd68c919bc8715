"""Recordings in a tab: Python decodes WAV, the page resamples it and computes log-mel frames, in
the event loop. The page also reads forms, as it has the browser's reader of them.

JavaScript's part is `web/src/multimodal/sound.ts`. What is no WAV is decoded by the page before it
asks (`web/src/multimodal/recording.ts`).
"""

from __future__ import annotations

from array import array
from collections.abc import AsyncIterator, Mapping
from typing import IO, Any

from mlcc.api.errors import BodyTooLargeError
from mlcc.embedded.bridge import to_bytes, typed_array
from mlcc.errors import InvalidRequestError
from mlcc.multimodal.audio.clips import AudioProcessor
from mlcc.multimodal.audio.encoded import EncodedAudio
from mlcc.multimodal.audio.frames import Recording
from mlcc.multimodal.audio.samples import Samples
from mlcc.multimodal.audio.sound import decode
from mlcc.multimodal.prompt import PreparedSound, prepare_sound
from mlcc.service.http.types import FormPart

_WAV = (b"RIFF", b"RF64")
"""Beginnings of a WAV."""


class PageKernels:
    """`SoundKernels` on the page's `SoundPort` (web/src/worker/python.ts)."""

    def __init__(self, js: Any) -> None:
        self._js, self._typed_array = js, typed_array()

    def log_mel(
        self, samples: bytes, frames: int, bins: int, largest: float, wanted: bool, /
    ) -> tuple[bytes, float]:
        """Frames, if wanted, and the largest log10 so far."""
        made = self._js.logMel(self._given(samples), frames, bins, largest, wanted)
        return to_bytes(made.frames), float(made.largest)

    def usm_log_mel(self, samples: bytes, frames: int, bins: int, /) -> bytes:
        """Frames as Gemma 4's audio tower reads them."""
        return to_bytes(self._js.usmLogMel(self._given(samples), frames, bins))

    def gemma3n_log_mel(self, samples: bytes, frames: int, bins: int, /) -> bytes:
        """Frames as Gemma 3n's audio tower reads them."""
        return to_bytes(self._js.gemma3nLogMel(self._given(samples), frames, bins))

    def resample(self, samples: bytes, from_rate: int, to_rate: int, /) -> bytes:
        """The samples at another rate."""
        return to_bytes(self._js.resample(self._given(samples), from_rate, to_rate))

    def _given(self, samples: bytes) -> Any:
        return self._typed_array(memoryview(samples))


def prepare_sound_in_tab(js: Any, processor: AudioProcessor, sound: EncodedAudio) -> PreparedSound:
    """The clips of a WAV. Raises InvalidRequestError."""
    if sound.data[:4] not in _WAV:
        raise InvalidRequestError(
            f"'{sound.field}' is no WAV, and the browser decodes it to none; convert it with "
            "`ffmpeg -i FILE -ar 16000 -ac 1 out.wav`",
            param=sound.field,
            code="unsupported_file",
        )
    return prepare_sound(processor, sound, PageKernels(js))


class TabSound:
    """`SoundHost` in the event loop, in which other answers wait meanwhile."""

    def __init__(self, js: Any) -> None:
        self._js, self._kernels = js, PageKernels(js)

    async def decode(self, file: IO[bytes]) -> array[float]:
        """Mono samples at 16 kHz of a WAV. Raises InvalidRequestError."""
        if file.read(4) not in _WAV:
            raise InvalidRequestError(
                "the file is no WAV, and the browser decodes it to none; convert it with "
                "`ffmpeg -i FILE -ar 16000 -ac 1 out.wav`",
                param="file",
                code="unsupported_file",
            )
        file.seek(0)
        return decode(file, self._kernels)

    async def recording(self, samples: Samples, bins: int, rows: int) -> Recording:
        """The samples as windows of `rows` rows."""
        return Recording(samples, bins, rows, self._kernels)

    async def window(self, recording: Recording, start: int) -> bytes:
        """The frames of a window, from frame `start` on."""
        return recording.window(start)

    async def form(
        self, headers: Mapping[str, str], body: bytes, most: int
    ) -> AsyncIterator[FormPart]:
        """The parts of a form of at most `most` bytes. Raises BodyTooLargeError,
        InvalidRequestError."""
        if len(body) > most:
            raise BodyTooLargeError(
                f"the form is larger than {most >> 20} MB; send less", code="body_too_large"
            )
        kind = headers.get("content-type", "")
        try:
            parts = await self._js.form(kind, typed_array()(memoryview(body)))
        except Exception as error:
            raise InvalidRequestError(
                f"the body is no form, and was declared as '{kind[:80] or 'nothing'}'; send "
                "FormData, as engine.audio.transcriptions.create does",
                code="invalid_form",
            ) from error
        for part in parts:
            filename, content = part.filename, to_bytes(part.content)
            filename = None if filename is None else str(filename)
            yield FormPart(str(part.name), filename, _whole(content))


async def _whole(content: bytes) -> AsyncIterator[bytes]:
    yield content
