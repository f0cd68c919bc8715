"""A small model that sees, and the decoder of a host: images through C, Kotlin and Swift."""

from __future__ import annotations

import struct
from io import BytesIO
from pathlib import Path
from typing import Any

from PIL import Image

from mlcc.artifact.folder import Artifact
from mlcc_compiler.checkpoint.folder import Checkpoint
from mlcc_compiler.compile import Progress, compile_model
from mlcc_compiler.options import Options
from mlcc_targets import Choices, get_target
from tests.e2e.vision.families import Oracle, save_family
from tests.e2e.vision.test_families_served import FILES, GREEDY, NEW, parts_of

QUESTIONS = [("@what is this?", FILES[:1]), ("see @ and @", [FILES[2], FILES[0]])]
"""Texts, in which @ is an image, and their images: PNG and GIF."""


def compiled(folder: Path) -> tuple[Path, Oracle]:
    """A LLaVA-OneVision for this machine's CPU, and transformers' of it."""
    model, out = save_family("llava_onevision", folder), folder / "compiled"
    options = Options(quant="f32", max_batch=2, max_step_tokens=128)
    source, target = Checkpoint.open(folder), get_target("cpu", Choices())
    compile_model(source, target, out, options, Progress())
    info = Artifact.open(out).manifest.vision
    assert info is not None
    return out, Oracle("llava_onevision", model, info)


def request(text: str, files: list[bytes]) -> dict[str, Any]:
    """A chat completion; @ in the text is an image."""
    question = {"role": "user", "content": parts_of(text, files)}
    return {"messages": [question], "max_tokens": NEW, **GREEDY}


def answer(oracle: Oracle, text: str, files: list[bytes]) -> str:
    """What transformers answers."""
    return oracle.answer(oracle.rendered(("user", text)), files, NEW)[0]


def decoded(what: int, special: int, data: bytes) -> tuple[int, bytes]:
    """What a platform's decoder gives, as an answer of `Host`."""
    assert what == 3
    kind, _, file = data.partition(b"\0")
    image = Image.open(BytesIO(file))
    assert kind.decode() == f"image/{image.format}".lower()
    rgb = image.convert("RGB")
    return 0, struct.pack("=II", *rgb.size) + rgb.tobytes()
