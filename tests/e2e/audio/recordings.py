"""Recordings of the tests: WAV files of noise."""

from __future__ import annotations

import io
import wave

import numpy as np


def recording(seconds: float, seed: int, rate: int = 16000) -> bytes:
    """A WAV of noise that swells and falls."""
    rng, count = np.random.default_rng(seed), int(rate * seconds)
    swell = np.sin(np.arange(count) * 2 * np.pi * (seed + 1) / rate) * 0.3
    samples = (swell * rng.normal(0, 0.5, count) * 32767).clip(-32768, 32767).astype("<i2")
    made = io.BytesIO()
    with wave.open(made, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(samples.tobytes())
    return made.getvalue()
