"""Log-mel frames as Gemma 3n reads them, and the rows of numbers that its tower reads.

Frames are computed in libmlcc_executor (`runtime/native/src/multimodal/usm_log_mel.cc`), in a tab
by the page (`web/src/multimodal/usm_log_mel.ts`), as transformers' Gemma3nAudioFeatureExtractor
does for one sound: 10 ms apart, of 32 ms each, the last one within the sound and what fills its
block.

A prompt has as many rows for each sound. The tower computes those that the sound has; the others
are all alike, and the last is the token behind the sound, which has an embedding of its own there.
Two rows of marks behind the sound's ask for these.
"""

from __future__ import annotations

from array import array

from mlcc.multimodal.audio.frames import FLOAT, HOP, SoundKernels, native_kernels
from mlcc.multimodal.audio.usm import FRAMES, PATCH, output_patches, places_of

BEGIN = "<start_of_audio>"
AROUND = (f"\n\n{BEGIN}", "\n\n")
"""What the processor writes before and after the sound's tokens, the last of which is the end."""
TAPS = 2
"""Outputs over time of the first convolution in a row; the second reads the next row's first too.
"""
THERE, FILL, LAST, REAL = 9, 10, 11, 12
"""Numbers of a patch behind the nine: 1 where the output is there; and of a row's first patch,
which is before the first frequency, 1 for a row of filling, the token behind the sound, and a row
of the sound."""
MARKED = 2
"""Rows of marks behind a sound's."""
_BLOCK, _WINDOW = 128, 512


def gemma3n_frames(
    samples: array[float], bins: int, kernels: SoundKernels | None = None
) -> tuple[bytes, int]:
    """Frames f32[count, bins] of samples at 16 kHz, and their count, which is 0 for what is too
    short. kernels: None = those of libmlcc_executor. Raises DeviceError where it was not built."""
    padded = samples + array("f", bytes(FLOAT * (-len(samples) % _BLOCK)))
    if len(padded) <= _WINDOW:
        return b"", 0
    count = (len(padded) - _WINDOW - 1) // HOP + 1
    kernels = kernels or native_kernels()
    return bytes(kernels.gemma3n_log_mel(padded.tobytes(), count, bins)), count


def gemma3n_rows(features: bytes, bins: int) -> bytes:
    """The tower's input f32[rows + MARKED, TAPS * places * PATCH], a row for each four frames that
    begin.

    Row t has the outputs 2 t and 2 t + 1 of the first convolution, and zeros for one whose first
    frame is behind the sound. Output u has, for each frequency f, of the frames 2 u, 2 u + 1 and
    2 u + 2 the bins 2 f - 1, 2 f and 2 f + 1, or zeros where there are none."""
    values = array("f", features)
    count, silent = len(values) // bins, array("f", bytes(FLOAT * bins))
    frames = [*(values[i * bins : (i + 1) * bins] for i in range(count)), silent, silent]
    outputs = [_output(frames[at : at + 3], bins, at % FRAMES == 0) for at in range(0, count, 2)]
    if len(outputs) % TAPS:
        outputs.append(bytes(FLOAT * places_of(bins) * PATCH))
    return b"".join([*outputs, _marked(FILL, bins), _marked(LAST, bins)])


def _output(frames: list[array[float]], bins: int, first: bool) -> bytes:
    """What one output over time reads: [places, PATCH]. first: of its row."""
    made = output_patches(frames, bins)
    end = (bins // 2 + 1) * PATCH
    made[PATCH + THERE : end : PATCH] = array("f", [1.0]) * (bins // 2)
    made[REAL] = float(first)
    return made.tobytes()


def _marked(number: int, bins: int) -> bytes:
    """A row of a mark alone."""
    made = array("f", bytes(FLOAT * TAPS * places_of(bins) * PATCH))
    made[number] = 1.0
    return made.tobytes()


def gemma3n_wanted(encoder_rows: int, rows: int, pool: int) -> list[int]:
    """Which of the tower's rows, MARKED included, become the `rows` of the prompt."""
    fill, last = encoder_rows - MARKED, encoder_rows - 1
    heard = range(0, fill, pool)
    return [*heard, *[fill] * (rows - 1 - len(heard)), last]
