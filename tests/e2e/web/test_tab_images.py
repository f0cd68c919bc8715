"""A SmolVLM in a tab of Chromium: images decoded by the browser, the tower on its GPU in software,
the same answers as transformers'."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator
from io import BytesIO
from typing import Any

import httpx
import pytest
from PIL import Image

from mlcc_compiler.checkpoint.folder import Checkpoint
from mlcc_compiler.compile import Progress, compile_model
from mlcc_compiler.options import Options
from mlcc_targets import Choices, get_target
from tests.e2e.vision.smolvlm import NEW, Made, expected, save_smolvlm
from tests.helpers import needs
from tests.helpers.web_package import bridge
from tests.runtime.multimodal.helpers.pictures import encoded, noise

pytestmark = pytest.mark.feature("smolvlm", "webgpu", "runs")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    needs.require_target("webgpu")
    saved = save_smolvlm(tmp_path_factory.mktemp("smolvlm"))
    target, wanted = get_target("webgpu", Choices(f16=False)), Options(quant="f32", max_batch=2)
    out = saved.folder / "webgpu"
    compile_model(Checkpoint.open(saved.folder), target, out, wanted, Progress())
    return saved


@pytest.fixture(scope="module")
def tab(made: Made) -> Iterator[str]:
    with bridge("chromium", made.folder / "webgpu") as url:
        yield url


def ask(tab: str, parts: list[bytes | str]) -> httpx.Response:
    content = [
        {"type": "text", "text": part}
        if isinstance(part, str)
        else {
            "type": "image_url",
            "image_url": {"url": f"data:;base64,{b64encode(part).decode()}"},
        }
        for part in parts
    ]
    body = {
        "messages": [{"role": "user", "content": content}],
        "max_tokens": NEW, "temperature": 0, "ignore_eos": True, "logit_bias": {"1": -100},
    }  # fmt: skip
    return httpx.post(f"{tab}/v1/chat/completions", json=body, timeout=300)


def translucent() -> bytes:
    """A PNG with an alpha of every value."""
    return encoded(noise(64, 64, 4, channels=4))


FILES = {
    "png": encoded(noise(90, 60, 1)),
    "translucent": translucent(),
    "webp": encoded(noise(40, 70, 2), "WEBP", lossless=True),
    "gif": encoded(noise(64, 64, 3).quantize(256), "GIF"),
}


@pytest.mark.parametrize("name", FILES)
def test_an_answer_is_that_of_transformers(name: str, made: Made, tab: str) -> None:
    answer = ask(tab, [FILES[name], "what is this?"])
    assert answer.status_code == 200, answer.text
    rgb = Image.open(BytesIO(FILES[name]))
    text = "User:<image>what is this?<end_of_utterance>\nAssistant:"
    assert _text(answer) == expected(made, text, [_on_white(rgb)])


def test_several_images_and_one_again(made: Made, tab: str) -> None:
    """Of the second question about the same images nothing but its end is computed."""
    first, second = FILES["png"], FILES["webp"]
    rendered = "User: a <image>{}<image><end_of_utterance>\nAssistant:"
    for between in (" b", " b"):
        answer = ask(tab, ["a ", first, between, second])
        assert _text(answer) == expected(made, rendered.format(between), [first, second])
    details = answer.json()["usage"]["prompt_tokens_details"]
    assert details["image_tokens"] > 0
    assert details["cached_tokens"] > details["image_tokens"]


def test_a_text_and_the_models_description(made: Made, tab: str) -> None:
    assert _text(ask(tab, ["so?"])) == expected(made, "User: so?<end_of_utterance>\nAssistant:", [])
    (model,) = httpx.get(f"{tab}/v1/models").json()["data"]
    assert model["input_modalities"] == ["text", "image"]


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ([FILES["png"][:200]], "is a damaged PNG file, or one that this browser does not decode"),
        ([b"BM" + bytes(60)], "has no image in a format that is read here"),
        ([FILES["png"]] * 17, "and a request may have 16 at most"),
        ([encoded(noise(16385, 1))], "has a side of 16385 pixels"),
    ],
)
def test_refused_by_name(parts: list[bytes | str], message: str, tab: str) -> None:
    answer = ask(tab, [*parts, "what?"])
    assert answer.status_code == 400
    assert message in answer.json()["error"]["message"]
    assert answer.json()["error"]["param"].startswith("messages[0].content[")


def _text(answer: httpx.Response) -> Any:
    return answer.json()["choices"][0]["message"]["content"]


def _on_white(image: Image.Image) -> bytes:
    """The image as a PNG without alpha, as transformers' own convert_to_rgb makes it."""
    rgba = image.convert("RGBA")
    white = Image.new("RGBA", image.size, (255, 255, 255))
    return encoded(Image.alpha_composite(white, rgba).convert("RGB"))
