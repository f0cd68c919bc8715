"""A Whisper in a tab of Chromium: frames by the page, the tower on its GPU in software, the same
transcripts as of the Python engine."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from mlcc import Engine
from mlcc_compiler.checkpoint.folder import Checkpoint
from mlcc_compiler.compile import Progress, compile_model
from mlcc_compiler.options import Options
from mlcc_targets import Choices, get_target
from tests.compiler.audio.checkpoints import IDS, WORDS, whisper
from tests.e2e.audio.recordings import recording
from tests.helpers import needs
from tests.helpers.letter_tokens import letters
from tests.helpers.web_package import bridge

pytestmark = pytest.mark.feature("whisper", "webgpu", "runs")


def compiled(folder: Path, target: str, choices: Choices) -> Path:
    wanted, out = Options(quant="f32", max_batch=2), folder / target
    row = get_target(target, choices)
    return compile_model(Checkpoint.open(folder), row, out, wanted, Progress())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    needs.require_target("webgpu")
    made = tmp_path_factory.mktemp("whisper")
    whisper(made)
    tokenizer = json.loads(letters(WORDS))  # a tab has no WordLevel
    letter: dict[str, int] = tokenizer["model"]["vocab"]
    spaced = {" " * (place % 3 == 0) + text: place for text, place in letter.items()}
    tokenizer["model"]["vocab"] = spaced  # words of some letters
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    tokenizer["added_tokens"] = [
        {"id": number, "content": text, "special": True, **flags} for text, number in IDS.items()
    ]
    (made / "tokenizer.json").write_text(json.dumps(tokenizer))
    return made


@pytest.fixture(scope="module")
def engine(folder: Path) -> Iterator[Engine]:
    with Engine(compiled(folder, "reference", Choices())) as made:
        yield made


@pytest.fixture(scope="module")
def model(folder: Path) -> Path:
    return compiled(folder, "webgpu", Choices(f16=False))


@pytest.fixture(scope="module")
def tab(model: Path) -> Iterator[str]:
    with bridge("chromium", model) as url:
        yield url


@pytest.mark.feature("word-times", "webgpu", "runs")
@pytest.mark.parametrize(
    ("seconds", "rate"), [pytest.param(1.2, 16000, marks=pytest.mark.long), (5.0, 44100)]
)
def test_segments_and_words_are_those_of_the_python_engine(
    engine: Engine, tab: str, seconds: float, rate: int
) -> None:
    data, form = recording(seconds, 3, rate), {"language": "en", "response_format": "verbose_json"}
    kinds = ["segment", "word"]
    wanted: Any = engine.audio.transcriptions.create(
        file=data, timestamp_granularities=kinds, **form
    ).to_dict()
    url, file = f"{tab}/v1/audio/transcriptions", {"file": ("a.wav", data)}
    fields = {**form, "timestamp_granularities[]": kinds}
    response = httpx.post(url, data=fields, files=file, timeout=120)
    assert response.status_code == 200, response.text
    found = response.json()
    assert found["text"] == wanted["text"]
    assert [(s["start"], s["end"], s["tokens"]) for s in found["segments"]] == [
        (s["start"], s["end"], s["tokens"]) for s in wanted["segments"]
    ]
    assert len(found["segments"]) > 1 if seconds > 2 else found["segments"]

    assert found["words"] == wanted["words"] and len(found["words"]) > 20 * (seconds > 2)


def test_a_stream_and_translations_by_openais_client(
    engine: Engine, folder: Path, tab: str
) -> None:
    client, data = openai.OpenAI(base_url=f"{tab}/v1", api_key="none"), recording(5.0, 1)
    wanted: Any = engine.audio.transcriptions.create(file=data, language="de").text
    events = [
        *client.audio.transcriptions.create(
            model=folder.name, file=("a.wav", data), language="de", stream=True
        )
    ]
    assert events[-1].type == "transcript.text.done"
    assert events[-1].text == wanted
    english: Any = engine.audio.translations.create(file=data, language="de").text
    found = client.audio.translations.create(
        model=folder.name, file=("a.wav", data), extra_body={"language": "de"}
    )
    assert found.text == english


@pytest.mark.parametrize(
    ("files", "form", "words"),
    [
        ({"file": ("a.txt", b"no sound at all, but text")}, {}, "the browser decodes it to none"),
        ({"file": ("a.wav", recording(1, 0))}, {"language": "xx"}, "the model's are de, en, haw"),
        ({"other": ("a.wav", b"x")}, {}, "the form has no 'file'"),
    ],
)
def test_what_is_refused(tab: str, files: Any, form: dict[str, str], words: str) -> None:
    url = f"{tab}/v1/audio/transcriptions"
    response = httpx.post(url, data=form, files=files or None, timeout=60)
    assert response.status_code == 400, response.text
    assert words in response.json()["error"]["message"]


def test_a_body_that_is_no_form_is_refused(tab: str) -> None:
    response = httpx.post(f"{tab}/v1/audio/transcriptions", json={"file": "a.wav"}, timeout=60)
    assert response.status_code == 400, response.text
    message = response.json()["error"]["message"]
    assert "the body is no form, and was declared as 'application/json'" in message


@pytest.mark.long
def test_node_transcribes_a_wav(engine: Engine, model: Path) -> None:
    data = recording(1.2, 3)
    wanted: Any = engine.audio.transcriptions.create(file=data, language="en").text
    with bridge("node", model) as url:
        files, form = {"file": ("a.wav", data)}, {"language": "en"}
        response = httpx.post(f"{url}/v1/audio/transcriptions", data=form, files=files, timeout=120)
    assert response.status_code == 200, response.text
    assert response.json()["text"] == wanted
