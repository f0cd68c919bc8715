"""A small model that hears: sound through C and Kotlin. Answers are compared with transformers'."""

from __future__ import annotations

import json
from base64 import b64encode
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
import torch

from mlcc_compiler.checkpoint.folder import Checkpoint
from mlcc_compiler.compile import Progress, compile_model
from mlcc_compiler.options import Options
from mlcc_targets import Choices, get_target
from tests.compiler.audio.input_checkpoints import AUDIO, BEGIN, END, given, marks_of, qwen2_audio
from tests.e2e.audio.test_run_audio import TEMPLATE, samples, wav
from tests.helpers.letter_tokens import FIRST, letters

QUESTION, NEW, TOKENS = 7, 4, 25
"""The token of a question, of an answer, and of a second of sound."""


def flac(pitch: float) -> bytes:
    """A second at 16 kHz."""
    file = BytesIO()
    soundfile.write(file, np.array(samples(pitch), np.int16), 16000, "PCM_16", format="FLAC")
    return file.getvalue()


SOUNDS: dict[str, list[tuple[float, bytes]]] = {
    "WAV": [(0.1, wav(0.1))],
    "FLAC": [(0.3, flac(0.3))],
    "both": [(0.2, flac(0.2)), (0.1, wav(0.1))],
}
"""Pitches and files of questions."""


def compiled(folder: Path) -> tuple[Path, Any]:
    """A Qwen2-Audio for this machine's CPU with a letter for each token, and transformers'."""
    oracle = qwen2_audio(folder)
    special = marks_of("qwen2_audio")
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    tokenizer = json.loads(letters(END))
    tokenizer["added_tokens"] = [
        {"id": number, "content": text, "special": True, **flags}
        for text, number in special.items()
    ]
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    options = Options(quant="f32", max_batch=2, max_step_tokens=64)
    target = get_target("cpu", Choices())
    out = compile_model(Checkpoint.open(folder), target, folder / "out", options, Progress())
    return out, oracle


def request(files: list[bytes]) -> dict[str, Any]:
    """A chat completion about these sounds."""
    parts: list[dict[str, Any]] = [
        {"type": "input_audio", "input_audio": {"data": b64encode(file).decode()}} for file in files
    ]
    parts.append({"type": "text", "text": chr(FIRST + QUESTION)})
    settings = {"max_tokens": NEW, "temperature": 0, "ignore_eos": True}
    return {"messages": [{"role": "user", "content": parts}], **settings}


def answer(oracle: Any, pitches: list[float]) -> str:
    """What transformers answers."""
    ids = [each for _ in pitches for each in (BEGIN, *[AUDIO] * TOKENS, END)] + [QUESTION]
    heard = [np.array(samples(pitch), np.float32) / 32768 for pitch in pitches]
    found: list[int] = []
    for _ in range(NEW):
        tokens = torch.tensor([ids + found])
        with torch.no_grad():
            logits = oracle(input_ids=tokens, **given("qwen2_audio", tokens, heard)).logits
        found.append(int(logits[0, -1].argmax()))
    return "".join(chr(FIRST + each) for each in found if each < END)
