"""Log-mel frames of sound, and the rows of frames that an audio tower reads.

Frames are computed in libmlcc_executor (`runtime/native/src/multimodal/log_mel.cc`), in a tab by
the page (`web/src/multimodal/log_mel.ts`), as transformers' WhisperFeatureExtractor does: 10 ms
apart, of 25 ms each, reflected at the ends.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from math import inf
from typing import Protocol

from mlcc.multimodal.audio.samples import Samples

RATE = 16000
"""Samples a second."""
HOP, REACH = 160, 200
"""Samples between frames, and on each side of a frame's middle."""
FLOAT = 4
"""Bytes of a float32."""
BLOCK = 1 << 20
"""Samples that are resampled at once, about: 4 MB."""
_TAPS = 3


class SoundKernels(Protocol):
    """What is computed of float32 samples outside Python. Raises DeviceError."""

    def log_mel(
        self, samples: bytes, frames: int, bins: int, largest: float, wanted: bool, /
    ) -> tuple[bytes | bytearray, float]:
        """Frames, if wanted, and the largest log10 so far."""
        ...

    def usm_log_mel(self, samples: bytes, frames: int, bins: int, /) -> bytes | bytearray:
        """Frames as `mlcc.multimodal.audio.usm` describes them."""
        ...

    def gemma3n_log_mel(self, samples: bytes, frames: int, bins: int, /) -> bytes | bytearray:
        """Frames as `mlcc.multimodal.audio.gemma3n` describes them."""
        ...

    def resample(self, samples: bytes, from_rate: int, to_rate: int, /) -> bytes | bytearray:
        """The samples at another rate."""
        ...


def native_kernels() -> SoundKernels:
    """Those of libmlcc_executor. Raises DeviceError where it was not built."""
    from mlcc.util import executor_library  # which a tab has not

    return executor_library.load()


def log_mel(
    samples: array[float], bins: int, kernels: SoundKernels | None = None, largest: float = -inf
) -> tuple[bytes, float]:
    """Frames f32[len(samples) / HOP, bins] of samples at 16 kHz, a multiple of HOP, and the largest
    log10 of them and `largest`: what is more than 8 below that is raised to it. kernels: None =
    those of libmlcc_executor. Raises DeviceError where it was not built."""
    padded = samples[REACH:0:-1] + samples + samples[-2 : -2 - REACH : -1]
    frames = len(samples) // HOP
    kernels = kernels or native_kernels()
    made, most = kernels.log_mel(padded.tobytes(), frames, bins, largest, True)
    return bytes(made), most


def resampled(
    pieces: Iterable[array[float]], rate: int, kernels: SoundKernels | None = None
) -> Iterator[array[float]]:
    """The samples of all pieces at 16 kHz, in pieces. Raises DeviceError where libmlcc_executor was
    not built. kernels: None = those of libmlcc_executor.

    Block by block of whole seconds, each with a second of its neighbours, which is further than the
    filter reaches: the same numbers as at once."""
    kernels = kernels or native_kernels()
    size = rate * max(1, BLOCK // rate)
    before, block = array("f"), array("f")
    for piece in pieces:
        block += piece
        while len(block) >= size + rate:
            found = _resampled(before + block[: size + rate], rate, kernels)
            begin = len(before) * RATE // rate
            yield found[begin : begin + size * RATE // rate]
            before, block = block[size - rate : size], block[size:]
    yield _resampled(before + block, rate, kernels)[len(before) * RATE // rate :]


def _resampled(samples: array[float], rate: int, kernels: SoundKernels) -> array[float]:
    found = array("f")
    found.frombytes(kernels.resample(samples.tobytes(), rate, RATE))
    return found


class Recording:
    """Samples at 16 kHz, as windows of log-mel frames. Frames are compared with the loudest of the
    whole recording, as transformers does; up to one window of sound is padded with silence before
    that, and a longer recording's last window with zeros afterwards."""

    def __init__(
        self,
        samples: Samples,
        bins: int,
        rows: int,
        kernels: SoundKernels | None = None,
    ) -> None:
        """kernels: None = those of libmlcc_executor. Raises DeviceError where it was not built."""
        self._kernels = kernels or native_kernels()
        self.seconds = len(samples) / RATE
        self._bins, self._window = bins, 2 * rows
        short = len(samples) <= self._window * HOP
        whole = self._window * HOP if short else len(samples) // HOP * HOP
        self._samples, self._whole = samples, whole
        self.frames = whole // HOP
        """Frames, of 10 ms each."""
        self.frames_of_sound = -(-len(samples) // HOP) if short else self.frames
        """Those before the silence that fills a short recording up."""
        self._largest = -inf
        if not short:
            for start in range(0, self.frames, self._window):
                self._largest = self._part(start, False)[1]

    def window(self, start: int) -> bytes:
        """Frames f32[2 * rows, bins] from frame `start` on."""
        found, _ = self._part(start, True)
        return found + bytes(FLOAT * self._bins * self._window - len(found))

    def _part(self, start: int, wanted: bool) -> tuple[bytes, float]:
        count = min(self._window, self.frames - start)
        first, end = start * HOP - REACH, (start + count - 1) * HOP + REACH
        over = max(0, end - self._whole)
        before = self._between(1, 1 - first)[::-1] if first < 0 else array("f")
        after = self._between(self._whole - 1 - over, self._whole - 1)[::-1]
        given = before + self._between(max(0, first), end - over) + after
        made, most = self._kernels.log_mel(
            given.tobytes(), count, self._bins, self._largest, wanted
        )
        return bytes(made), most

    def _between(self, first: int, end: int) -> array[float]:
        """Samples, and silence behind the last."""
        found = self._samples[first:end]
        found.frombytes(bytes(FLOAT * (end - first - len(found))))
        return found


def _slice(bins: int) -> int:
    """Numbers of three frames and a 1, in whole vectors."""
    return -(-(_TAPS * bins + 1) // 16) * 16


def row_bytes(bins: int) -> int:
    """Bytes of one of the `tower_rows`."""
    return FLOAT * _TAPS * _slice(bins)


def tower_rows(features: bytes, bins: int) -> bytes:
    """The tower's input f32[frames / 2, 3 * slice]: for each row the three inputs of the first
    convolution that the second reads, each three frames, a 1 and zeros; beyond the window zeros."""
    frame = FLOAT * bins
    slices = _slice(bins)
    behind = array("f", [1.0] + [0.0] * (slices - _TAPS * bins - 1)).tobytes()
    nothing, padded = bytes(FLOAT * slices), bytes(frame) + features + bytes(frame)
    count = len(features) // frame
    inputs = [nothing]
    inputs += [padded[i * frame : (i + _TAPS) * frame] + behind for i in range(count)]
    # row t reads inputs 2 t - 1, 2 t and 2 t + 1
    inputs.append(nothing)
    return b"".join(b"".join(inputs[t : t + _TAPS]) for t in range(0, count, 2))
