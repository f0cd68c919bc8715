"""Whisper tiny.en beside faster-whisper (CTranslate2) and whisper.cpp on the CPU, in turns.

    python -m benchmarks.peers.transcribe [--rounds 5] [--threads 2] [--work build/transcribe]

The weights are those of the extra `real`; espeak-ng speaks a text of 44 s. Each engine is a process
that stays, and transcribes once before the rounds. Each round has a recording of its own, with more
silence before the speech: mlcc keeps the encoder's rows of windows that it has heard. All are
greedy. mlcc is
compiled as q8 and f32, faster-whisper runs as int8 and float32, whisper.cpp as Q8_0 and f16: each
in its environment under build/peers (`install.py`; PyPI's wheels, of which whisper.cpp's is
built for AVX2). Prints the median of the seconds, how many seconds of speech that is a second, and
the part of the words that are wrong; then one JSON line.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import wave
from pathlib import Path
from statistics import fmean, median
from typing import Any

from benchmarks.peers import install, whisper_ggml
from mlcc.multimodal.audio.frames import RATE
from mlcc.multimodal.audio.sound import decode
from mlcc_compiler.checkpoint.folder import Checkpoint
from mlcc_compiler.compile import Progress, compile_model
from mlcc_compiler.options import Options
from mlcc_targets import Choices, get_target
from tests.helpers import whisper_tiny

WORKER = Path(__file__).with_name("run_whisper.py")
TEXT = """It was the best of times, it was the worst of times, it was the age of wisdom, it was the
age of foolishness, it was the epoch of belief, it was the epoch of incredulity, it was the season
of light, it was the season of darkness, it was the spring of hope, it was the winter of despair. We
had everything before us, we had nothing before us, we were all going direct to heaven, we were all
going direct the other way. Call me Ishmael. Some years ago, having little or no money in my purse,
and nothing particular to interest me on shore, I thought I would sail about a little and see the
watery part of the world. It is a way I have of driving off the spleen and regulating the
circulation."""
"""Dickens and Melville."""


SILENCE = 591
"""Samples that are silent before the speech of the first recording, twice as many in the next."""


def spoken(folder: Path, count: int) -> tuple[list[Path], float]:
    """Write the speech as `count` different WAVs of 16 kHz. Returns them and the seconds of one."""
    raw = folder / "speech.wav"
    subprocess.run(["espeak-ng", "-s", "150", "-w", str(raw), TEXT], check=True)
    with raw.open("rb") as file:
        samples = decode(file)
    whole = (max(-32768, min(32767, round(each * 32768))) for each in samples)
    frames = b"".join(each.to_bytes(2, "little", signed=True) for each in whole)
    paths = [folder / f"speech-{number}.wav" for number in range(count)]
    for number, path in enumerate(paths, 1):
        with wave.open(str(path), "wb") as out:
            out.setparams((1, 2, RATE, 0, "NONE", ""))
            out.writeframes(bytes(2 * number * SILENCE) + frames)
    return paths, len(samples) / RATE


def word_error(found: str, wanted: str = TEXT) -> float:
    """Words to change, to add and to leave out, of those that were spoken."""
    ours, right = (re.findall(r"[a-z']+", text.lower()) for text in (found, wanted))
    row: list[int] = [*range(len(right) + 1)]
    for at, word in enumerate(ours, 1):
        before, row[0] = row[0], at
        for i, other in enumerate(right, 1):
            before, row[i] = row[i], min(row[i] + 1, row[i - 1] + 1, before + (word != other))
    return row[-1] / len(right)


class Worker:
    """An engine's process."""

    def __init__(self, python: Path, engine: str, model: Path, threads: int) -> None:
        words = [python, WORKER, engine, model, threads]
        self._process = subprocess.Popen(
            [*map(str, words)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def transcript(self, wav: Path) -> dict[str, Any]:
        """Its seconds and text. Raises SystemExit if the process ended."""
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write(f"{wav}\n")
        self._process.stdin.flush()
        if not (line := self._process.stdout.readline()):
            raise SystemExit(f"an engine ended; see above: {self._process.args!r}")
        return dict(json.loads(line))

    def close(self) -> None:
        self._process.communicate(timeout=60)


def compiled(checkpoint: Path, out: Path, quant: str) -> Path:
    if not (out / "mlcc.json").exists():
        target, options = get_target("cpu", Choices()), Options(quant=quant, max_batch=2)
        compile_model(Checkpoint.open(checkpoint), target, out, options, Progress())
    return out


def workers(checkpoint: Path, work: Path, threads: int) -> dict[str, Worker]:
    """All engines, by their names in the table."""
    packaged, here = whisper_tiny.packaged(), Path(sys.executable)
    assert packaged is not None
    ggml = {
        quant: whisper_ggml.write(checkpoint, work / f"{quant}.bin", quant)
        for quant in ("q8_0", "f16")
    }
    rows: list[tuple[str, Path, str, Path]] = [
        *((f"mlcc {quant}", here, "mlcc", compiled(checkpoint, work / quant, quant))
          for quant in ("q8", "f32")),
        *((f"faster-whisper {kind}", install.faster_whisper(), f"faster-whisper:{kind}", packaged)
          for kind in ("int8", "float32")),
        *((f"whisper.cpp {quant}", install.whisper_cpp(), "whisper.cpp", path)
          for quant, path in ggml.items()),
    ]  # fmt: skip
    return {name: Worker(python, engine, model, threads) for name, python, engine, model in rows}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--work", type=Path, default=Path("build/transcribe"))
    given = parser.parse_args()
    given.work.mkdir(parents=True, exist_ok=True)
    checkpoint = whisper_tiny.write(given.work / "tiny.en")
    (first, *wavs), length = spoken(given.work, given.rounds + 1)
    engines = workers(checkpoint, given.work, given.threads)
    for worker in engines.values():
        worker.transcript(first)
    seconds: dict[str, list[float]] = {name: [] for name in engines}
    texts: dict[str, list[str]] = {name: [] for name in engines}
    for wav in wavs:
        for name, worker in engines.items():
            made = worker.transcript(wav)
            seconds[name].append(made["seconds"])
            texts[name].append(made["text"])
    for worker in engines.values():
        worker.close()
    print(f"{length:.1f} s of speech, {given.threads} threads, load {os.getloadavg()[0]:.1f}")
    found = {
        name: {
            "seconds": round(median(each), 3),
            "best": round(min(each), 3),
            "times_real": round(length / median(each), 1),
            "word_error": round(fmean(map(word_error, texts[name])), 3),
        }
        for name, each in seconds.items()
    }
    for name, row in found.items():
        print(f"{name:24}", "  ".join(f"{key} {value}" for key, value in row.items()))
    print(json.dumps({"engines": found, "texts": {name: each[0] for name, each in texts.items()}}))


if __name__ == "__main__":
    main()
