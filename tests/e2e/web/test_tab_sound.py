"""Language models that hear, in a tab of Chromium: frames by the page, the tower on its GPU in
software, the same answers as of the Python engine."""

from __future__ import annotations

import json
import wave
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from mlcc import Engine
from mlcc_compiler.checkpoint.folder import Checkpoint
from mlcc_compiler.compile import Progress, compile_model
from mlcc_compiler.options import Options
from mlcc_targets import Choices, get_target
from tests.compiler.audio.input_checkpoints import FAMILIES, marks_of
from tests.helpers import needs
from tests.helpers.letter_tokens import FIRST, letters
from tests.helpers.web_package import bridge

TEMPLATE = (
    "{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}"
    "{% for part in m.content %}{{ part.text if part.type == 'text' else SOUND }}{% endfor %}"
    "{% endif %}{% endfor %}"
)
PART = {
    "qwen2_audio": "qwen2-audio",
    "qwen2_5_omni": "qwen2.5-omni",
    "voxtral": "voxtral",
    "gemma3n": "gemma3n-sound",
    "gemma4": "gemma4-sound",
}
"""In the table of features."""
WORDS = "".join(chr(FIRST + token) for token in (7, 9, 20))
GREEDY = {"max_tokens": 6, "temperature": 0, "ignore_eos": True}


@dataclass(frozen=True)
class Both:
    engine: Engine
    tab: str


def in_letters(special: dict[str, int]) -> str:
    """A tokenizer.json of one letter a token, as a tab has no WordLevel, with these tokens."""
    tokenizer = json.loads(letters(min(special.values())))
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    tokenizer["added_tokens"] = [
        {"id": number, "content": text, "special": True, **flags}
        for text, number in special.items()
    ]
    return json.dumps(tokenizer)


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(family, marks=[pytest.mark.long, pytest.mark.feature(part, "webgpu", "runs")])
        for family, part in PART.items()
    ],
)
def both(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Both]:
    """The Python engine, and a tab with the same model."""
    needs.require_target("webgpu")
    folder = tmp_path_factory.mktemp(request.param)
    FAMILIES[request.param](folder)
    special = marks_of(request.param)
    (folder / "tokenizer.json").write_text(in_letters(special))
    end, begin, mark = special
    sound = mark if request.param.startswith("gemma") else begin + mark + end
    (folder / "chat_template.jinja").write_text(TEMPLATE.replace("SOUND", repr(sound)))
    with in_both(folder) as made:
        yield made


@contextmanager
def in_both(folder: Path) -> Iterator[Both]:
    wanted = Options(quant="f32", max_batch=2, max_step_tokens=64, vision=True)
    out: dict[str, Path] = {}
    for target, choices in (("reference", Choices()), ("webgpu", Choices(f16=False))):
        row = get_target(target, choices)
        out[target] = compile_model(
            Checkpoint.open(folder), row, folder / target, wanted, Progress()
        )
    with Engine(out["reference"]) as engine, bridge("chromium", out["webgpu"]) as url:
        yield Both(engine, url)


def wav(seconds: float, pitch: float, rate: int = 16000) -> bytes:
    values = 9000 * np.sin(pitch * np.arange(int(rate * seconds)) * 16000 / rate)
    file = BytesIO()
    with wave.open(file, "wb") as opened:
        opened.setparams((1, 2, rate, 0, "NONE", ""))
        opened.writeframes(values.astype(np.int16).tobytes())
    return file.getvalue()


def asked(*parts: bytes | str) -> dict[str, Any]:
    content = [
        {"type": "text", "text": part}
        if isinstance(part, str)
        else {
            "type": "input_audio",
            "input_audio": {"data": b64encode(part).decode(), "format": "wav"},
        }
        for part in parts
    ]
    return {"messages": [{"role": "user", "content": content}], **GREEDY}


def post(tab: str, body: dict[str, Any]) -> httpx.Response:
    return httpx.post(f"{tab}/v1/chat/completions", json=body, timeout=300)


@pytest.mark.parametrize(
    "parts",
    [
        [wav(1, 0.1), WORDS],
        [WORDS, wav(0.7, 0.2), wav(1.2, 0.3, 44100), WORDS],
        [WORDS],
    ],
    ids=["one", "two, another rate", "none"],
)
def test_answers_are_those_of_the_python_engine(parts: list[bytes | str], both: Both) -> None:
    body = asked(*parts)
    wanted: Any = both.engine.chat.completions.create(**body).to_dict()
    response = post(both.tab, body)
    assert response.status_code == 200, response.text
    found = response.json()
    assert found["choices"][0]["message"] == wanted["choices"][0]["message"]
    details = [answer["usage"]["prompt_tokens_details"] for answer in (found, wanted)]
    heard = [each.get("audio_tokens", 0) for each in details]
    assert heard[0] == heard[1] and bool(heard[0]) == (len(parts) > 1)


def test_the_description_and_refusals(both: Both) -> None:
    (model,) = httpx.get(f"{both.tab}/v1/models").json()["data"]
    assert model["input_modalities"] == ["text", "audio"]
    for data, words in (
        (b"fLaC", "is no WAV, and the browser decodes it to none"),
        (b"RIFF", "WAV"),
    ):
        response = post(both.tab, asked(data + bytes(60), WORDS))
        error = response.json()["error"]
        assert response.status_code == 400 and words in error["message"]
        assert error["param"] == "messages[0].content[0].input_audio.data"


@pytest.mark.parametrize("kind", ["FLAC", "OGG"])
def test_what_the_browser_decodes_is_heard(kind: str, both: Both) -> None:
    """FLAC keeps the samples, so the answer is that of the WAV; Ogg does not, but it is heard."""
    soundfile = pytest.importorskip("soundfile", reason="soundfile: pip install 'mlcc[audio]'")
    sound = wav(0.8, 0.1)
    samples, rate = soundfile.read(BytesIO(sound), dtype="int16")
    packed = BytesIO()
    soundfile.write(packed, samples, rate, format=kind)
    wanted, found = (post(both.tab, asked(each, WORDS)) for each in (sound, packed.getvalue()))
    assert (wanted.status_code, found.status_code) == (200, 200), found.text
    first, second = wanted.json(), found.json()
    heard = [each["usage"]["prompt_tokens_details"]["audio_tokens"] for each in (first, second)]
    assert heard[0] == heard[1] > 0
    if kind == "FLAC":
        assert first["choices"][0]["message"] == second["choices"][0]["message"]
