"""Sound on the command line, `mlcc run --audio` and `/audio` in a chat: a Qwen2-Audio from the
bytes of a file to the text of an answer. Small random weights, float32 on the reference; answers
are compared with transformers'."""

from __future__ import annotations

import sys
import wave
from array import array
from base64 import b64decode
from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
import torch
from click.testing import CliRunner, Result

from mlcc.cli import cli
from mlcc.commands.chat import Chat
from mlcc.commands.chat_backend import LocalBackend
from mlcc.engine_args import EngineArgs
from mlcc.errors import InvalidRequestError, UnsupportedError
from mlcc.limits import default
from mlcc.loader import open_model
from mlcc.model.conversation import Conversation
from mlcc.model.session import Session
from mlcc_compiler.checkpoint.folder import Checkpoint
from mlcc_compiler.compile import Progress, compile_model
from mlcc_compiler.options import Options
from mlcc_targets import Choices, get_target
from tests.compiler.audio.input_checkpoints import AUDIO, BEGIN, END, given, qwen2_audio
from tests.e2e.vision.test_smolvlm_answers import Quiet

TEMPLATE = (
    "{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}"
    "{% for part in m.content %}{{ part.text if part.type == 'text' else "
    "'<|audio_bos|><|AUDIO|><|audio_eos|>' }}{% endfor %}{% endif %}{% endfor %}"
)
QUESTION, NEW = 7, 4
TOKENS = 25
"""Of a second."""


@dataclass(frozen=True)
class Made:
    hears: Path
    """The compiled model."""
    deaf: Path
    """The same without its tower."""
    oracle: Any


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    folder = tmp_path_factory.mktemp("hears")
    oracle = qwen2_audio(folder)
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    target = get_target("reference", Choices())

    def compiled(name: str, **more: Any) -> Path:
        wanted = Options(quant="f32", max_batch=2, max_step_tokens=64, **more)
        return compile_model(Checkpoint.open(folder), target, folder / name, wanted, Progress())

    return Made(compiled("compiled"), compiled("deaf", vision=False), oracle)


def samples(pitch: float) -> array[int]:
    """A second at 16 kHz."""
    return array("h", (9000 * np.sin(pitch * np.arange(16000))).astype(np.int16).tobytes())


def wav(pitch: float, seconds: int = 1) -> bytes:
    file = BytesIO()
    with wave.open(file, "wb") as opened:
        opened.setparams((1, 2, 16000, 0, "NONE", ""))
        opened.writeframes(samples(pitch).tobytes() * seconds)
    return file.getvalue()


def expected(made: Made, pitches: Sequence[float]) -> list[str]:
    """The words of transformers' greedy answer to QUESTION about these sounds."""
    ids = [each for _ in pitches for each in (BEGIN, *[AUDIO] * TOKENS, END)] + [QUESTION]
    heard = [np.array(samples(pitch), np.float32) / 32768 for pitch in pitches]
    answer: list[int] = []
    for _ in range(NEW):
        tokens = torch.tensor([ids + answer])
        with torch.no_grad():
            logits = made.oracle(input_ids=tokens, **given("qwen2_audio", tokens, heard)).logits
        answer.append(int(logits[0, -1].argmax()))
    return [f"w{each}" for each in answer if each < END]


def run(folder: Path, *options: str) -> Result:
    command = ["run", str(folder), f"w{QUESTION}", "--temperature", "0", "--max-tokens", str(NEW)]
    return CliRunner().invoke(cli, [*command, *options])


@pytest.mark.parametrize("pitches", [[0.1], [0.3, 0.1]])
def test_run_hears_files(pitches: list[float], made: Made, tmp_path: Path) -> None:
    names = [tmp_path / f"{pitch}.wav" for pitch in pitches]
    for name, pitch in zip(names, pitches, strict=True):
        name.write_bytes(wav(pitch))
    result = run(made.hears, *[word for name in names for word in ("--audio", str(name))])
    assert result.exit_code == 0, result.output
    wanted = expected(made, pitches)
    assert result.stdout.split()[: len(wanted)] == wanted


def test_run_hears_what_a_phone_records(made: Made, tmp_path: Path) -> None:
    """M4A, here without loss."""
    file = tmp_path / "0.1.m4a"
    with av.open(file, "w", format="ipod") as opened:
        stream = opened.add_stream("alac", rate=16000, layout="mono")
        frame = av.AudioFrame("s16p", "mono", 16000)
        frame.sample_rate = 16000
        frame.planes[0].update(samples(0.1).tobytes().ljust(frame.planes[0].buffer_size, b"\0"))
        fit = av.AudioResampler("s16p", "mono", 16000, stream.codec_context.frame_size or 4096)
        for each in [*fit.resample(frame), *fit.resample(None)]:
            opened.mux(stream.encode(each))
        opened.mux(stream.encode(None))
    result = run(made.hears, "--audio", str(file))
    assert result.exit_code == 0, result.output
    wanted = expected(made, [0.1])
    assert result.stdout.split()[: len(wanted)] == wanted


def test_chat_hears_a_file_with_the_next_question(made: Made, tmp_path: Path) -> None:
    (tmp_path / "a.wav").write_bytes(wav(0.1))
    session = Session(open_model(made.hears, EngineArgs(str(made.hears))))
    screen = Quiet()
    sampling = {"temperature": 0, "max_tokens": NEW, "ignore_eos": True}
    chat = Chat(LocalBackend(session), Conversation(), sampling, screen)
    try:
        assert chat._command(f"/audio {tmp_path / 'a.wav'}")
        chat._turn(f"w{QUESTION}")
        assert chat._command(f"/save {tmp_path / 'kept.json'}")
        assert chat._command("/clear") and chat._command(f"/load {tmp_path / 'kept.json'}")
        assert chat._command(f"/audio {tmp_path / 'none.wav'}") and chat._command("/audio")
    finally:
        session.close()
    assert "a.wav, WAV, goes with the next question" in screen.notes[0]
    assert "cannot be read (No such file" in screen.notes[-2] and "/audio FILE" in screen.notes[-1]
    question, answer = chat.conversation.turns
    assert [part["type"] for part in question["content"]] == ["input_audio", "text"]
    assert answer["content"].split() == expected(made, [0.1])


LONG = 3
"""Seconds; the model here hears 2 at most."""
TOO_LONG = "long.wav lasts 3.0 s, and the model hears at most 2 s; send it in parts"
FILES = {
    "a.wav": wav(0.1),
    "long.wav": wav(0.1, LONG),
    "a.txt": b"not a sound",
    "a.m4a": b"\0\0\0\x20ftypM4A ",
    "large.wav": bytes(default("max_audio_bytes") + 1),
}
REFUSED: dict[str, tuple[list[str], str]] = {
    "missing": (["--audio", "none.wav"], "none.wav cannot be read (No such file"),
    "folder": (["--audio", "."], "cannot be read (Is a directory"),
    "large": (["--audio", "large.wav"], "large.wav has 20000001 bytes, and sounds may have 2000"),
    "unknown": (["--audio", "a.txt"], "a.txt: the file is no WAV, FLAC, Ogg, MP3, M4A or WebM"),
    "not decoded": (["--audio", "a.m4a"], "a.m4a: the file is M4A, which needs av"),
    "too long": (["--audio", "a.wav", "--audio", "long.wav"], TOO_LONG),
    "raw": (["--audio", "a.wav", "--raw"], "--audio is for a chat template; leave out --raw"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_run_refuses_by_name(
    name: str, made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "av", None)
    monkeypatch.chdir(tmp_path)
    for file, data in FILES.items():
        Path(file).write_bytes(data)
    options, message = REFUSED[name]
    result = run(made.hears, *options)
    assert isinstance(result.exception, InvalidRequestError)
    assert message in str(result.exception)


def test_a_chat_names_the_file_that_is_too_long(made: Made, tmp_path: Path) -> None:
    """And keeps no question of it."""
    (tmp_path / "long.wav").write_bytes(FILES["long.wav"])
    session = Session(open_model(made.hears, EngineArgs(str(made.hears))))
    screen = Quiet()
    chat = Chat(LocalBackend(session), Conversation(), {"temperature": 0}, screen)
    try:
        assert chat._command(f"/audio {tmp_path / 'long.wav'}")
        chat._turn(f"w{QUESTION}")
    finally:
        session.close()
    assert screen.notes[-1] == f"error: {tmp_path}/{TOO_LONG}"
    assert not chat.conversation.turns


def test_a_model_without_the_tower_is_named(made: Made, tmp_path: Path) -> None:
    (tmp_path / "a.wav").write_bytes(wav(0.1))
    result = run(made.deaf, "--audio", str(tmp_path / "a.wav"))
    assert isinstance(result.exception, UnsupportedError)
    assert "it has no audio tower; leave sound out, or take a model" in str(result.exception)


def test_a_model_that_hears_refuses_images(made: Made, tmp_path: Path) -> None:
    pixel = "R0lGODdhAQABAIAAAAAAAP///ywAAAAAAQABAAACAkQBADs="
    (tmp_path / "a.gif").write_bytes(b64decode(pixel))
    result = run(made.hears, "--image", str(tmp_path / "a.gif"))
    assert isinstance(result.exception, UnsupportedError)
    assert "has no vision tower; leave images out" in str(result.exception)
