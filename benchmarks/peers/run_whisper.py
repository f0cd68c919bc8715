"""Transcribes WAVs of 16 kHz by one engine, in this process: for each path, a line of its input, it
prints JSON with seconds and text. For `transcribe.py`, which runs several engines in turns.

    PYTHON benchmarks/peers/run_whisper.py ENGINE MODEL THREADS

ENGINE: mlcc, faster-whisper:int8 (or another type of CTranslate2), or whisper.cpp. Runs in the
environment of its engine. All are greedy, with their own defaults otherwise.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from typing import Any

Transcribe = Callable[[str], str]


def by_mlcc(model: str, threads: int) -> Transcribe:
    from mlcc import Engine

    engine = Engine(model, threads=threads)
    return lambda wav: str(engine.audio.transcriptions.create(file=wav).text)


def by_faster_whisper(kind: str, model: str, threads: int) -> Transcribe:
    import faster_whisper  # type: ignore[import-not-found]

    whisper = faster_whisper.WhisperModel(
        model, device="cpu", compute_type=kind, cpu_threads=threads
    )

    def transcribe(wav: str) -> str:
        segments, _ = whisper.transcribe(wav, language="en", beam_size=1)
        return "".join(segment.text for segment in segments)  # computed as they are read

    return transcribe


def by_whisper_cpp(model: str, threads: int) -> Transcribe:
    from pywhispercpp.model import Model  # type: ignore[import-not-found]

    whisper: Any = Model(
        model, n_threads=threads, print_progress=False, redirect_whispercpp_logs_to=None
    )
    return lambda wav: "".join(segment.text for segment in whisper.transcribe(wav))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    for name in ("engine", "model"):
        parser.add_argument(name)
    parser.add_argument("threads", type=int)
    given = parser.parse_args()
    engine, _, kind = given.engine.partition(":")
    if engine == "mlcc":
        transcribe = by_mlcc(given.model, given.threads)
    elif engine == "faster-whisper":
        transcribe = by_faster_whisper(kind, given.model, given.threads)
    else:
        transcribe = by_whisper_cpp(given.model, given.threads)
    for line in sys.stdin:
        start = time.perf_counter()
        text = transcribe(line.strip())
        seconds = time.perf_counter() - start
        print(json.dumps({"seconds": seconds, "text": text.strip()}), flush=True)


if __name__ == "__main__":
    main()
