"""Sound through the C library with nothing but the zip with mlcc's modules, as on phones. Answers
are those of transformers, and transcripts those of the Python engine."""

from __future__ import annotations

import json
from pathlib import Path

import httpx
import pytest

from mlcc import Engine
from mlcc_compiler.checkpoint.folder import Checkpoint
from mlcc_compiler.compile import Progress, compile_model
from mlcc_compiler.options import Options
from mlcc_targets import Choices, get_target
from tests.compiler.audio.checkpoints import whisper
from tests.e2e.audio.recordings import recording
from tests.e2e.audio.test_speech_served import settings
from tests.e2e.mobile.test_c_requests import CHAT
from tests.helpers.mobile.c_host import Host
from tests.helpers.mobile.c_library import Library
from tests.helpers.mobile.hearing import SOUNDS, answer, compiled, request

EVENTS = 1


@pytest.mark.feature("c-sound", "cpu", "runs")
def test_a_model_answers_as_transformers_does(c_library: Library, tmp_path: Path) -> None:
    out, oracle = compiled(tmp_path)
    with Host(c_library.program) as host:
        assert host.start(path="").c == 0
        engine = host.create(EVENTS, model=str(out))
        assert not [note for note in host.ready()["notes"] if "sound" in note]
        for sounds in SOUNDS.values():
            status, body = host.ask(engine, CHAT, request([file for _, file in sounds])).answer()
            assert status == 200, body
            found = json.loads(body)
            pitches = [pitch for pitch, _ in sounds]
            assert found["choices"][0]["message"]["content"] == answer(oracle, pitches)
            assert found["usage"]["prompt_tokens_details"]["audio_tokens"] == 25 * len(sounds)


@pytest.mark.feature("c-sound", "cpu", "runs")
def test_a_form_is_transcribed(c_library: Library, tmp_path: Path) -> None:
    whisper(tmp_path)
    (tmp_path / "generation_config.json").write_text(json.dumps(settings()))
    target, options = get_target("cpu", Choices()), Options(quant="f32", max_batch=2)
    source, out = Checkpoint.open(tmp_path), tmp_path / "out"
    compile_model(source, target, out, options, Progress())
    data, url = recording(7.3, 3), "http://localhost/v1/audio/transcriptions"
    with Engine(out) as python:
        wanted = python.audio.transcriptions.create(file=data, language="en").text
    form = {"file": ("a.wav", data)}
    sent = httpx.Request("POST", url, files=form, data={"language": "en"})
    headers = {"content-type": sent.headers["content-type"]}
    with Host(c_library.program) as host:
        assert host.start(path="").c == 0
        engine = host.create(EVENTS, model=str(out))
        host.ready()
        call = host.ask(engine, sent.url.path, sent.read(), headers=headers)
        status, body = call.answer()
        assert status == 200 and json.loads(body)["text"] == wanted, body
        assert len(wanted) > 20
