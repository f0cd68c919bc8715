"""Log-mel frames as Universal Speech Models read them (Gemma 4), and the rows of numbers that their
tower reads.

Frames are computed in libmlcc_executor (`runtime/native/src/multimodal/usm_log_mel.cc`), in a tab
by the page (`web/src/multimodal/usm_log_mel.ts`), as transformers' Gemma4AudioFeatureExtractor
does: 10 ms apart, of 20 ms each, the first one half before the sound, and none reaches behind it.
"""

from __future__ import annotations

from array import array

from mlcc.multimodal.audio.frames import FLOAT, HOP, SoundKernels, native_kernels

BEGIN, END = "<|audio>", "<audio|>"
"""Tokens around sound, which the processor writes."""
FRAMES = 4
"""Of a row."""
TAPS = 3
"""Outputs over time of the first convolution that the second reads; each reads as many frames."""
PATCH = 16
"""Numbers that an output of the first convolution reads, nine, and zeros behind them."""
_KERNEL = 3


def usm_frames(samples: array[float], bins: int, kernels: SoundKernels | None = None) -> bytes:
    """Frames f32[frames, bins] of samples at 16 kHz, which are more than HOP. kernels: None = those
    of libmlcc_executor. Raises DeviceError where it was not built."""
    padded = array("f", bytes(FLOAT * HOP)) + samples
    kernels = kernels or native_kernels()
    return bytes(kernels.usm_log_mel(padded.tobytes(), frame_count(len(samples)), bins))


def frame_count(samples: int) -> int:
    """Frames that end within the sound."""
    return max(0, samples - 1) // HOP


def places_of(bins: int) -> int:
    """Frequencies of the first convolution's output, with a place before the first, which the
    second convolution reads, and one behind the last, which makes it even."""
    return bins // 2 + 2


def usm_row_bytes(bins: int) -> int:
    """Bytes of one of the `usm_rows`."""
    return FLOAT * TAPS * places_of(bins) * PATCH


def usm_rows(features: bytes, bins: int) -> bytes:
    """The tower's input f32[rows, TAPS * places * PATCH], a row for each four frames that begin.

    Row t has the outputs 2 t - 1, 2 t and 2 t + 1 of the first convolution, zeros for those before
    the sound, and for those whose middle frame is behind it. Output u has, for each frequency f, of
    the frames 2 u - 1, 2 u and 2 u + 1 the bins 2 f - 1, 2 f and 2 f + 1, or zeros where there are
    none."""
    values = array("f", features)
    count, silent = len(values) // bins, array("f", bytes(FLOAT * bins))
    frames = [silent, *(values[i * bins : (i + 1) * bins] for i in range(count)), silent]
    nothing = bytes(FLOAT * places_of(bins) * PATCH)
    made = (output_patches(frames[at : at + _KERNEL], bins) for at in range(0, count, 2))
    outputs = [nothing, *(each.tobytes() for each in made), nothing]
    rows = range(0, len(outputs) - 2, 2)
    return b"".join(b"".join(outputs[at : at + TAPS]) for at in rows)


def output_patches(frames: list[array[float]], bins: int) -> array[float]:
    """What one output over time reads of three frames: [places, PATCH]."""
    made = array("f", bytes(FLOAT * places_of(bins) * PATCH))
    end = (bins // 2 + 1) * PATCH
    for line, frame in enumerate(frames):
        at = PATCH + _KERNEL * line
        made[at + PATCH : end : PATCH] = frame[1:-1:2]  # from the second place on: bin -1 is none
        made[at + 1 : end : PATCH] = frame[0::2]
        made[at + 2 : end : PATCH] = frame[1::2]
    return made
