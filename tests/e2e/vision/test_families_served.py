"""Each family that sees, over HTTP: `mlcc serve` of a small random checkpoint, asked through the
clients of OpenAI, Anthropic and Ollama. Answers are those of transformers' processor and model."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from base64 import b64encode
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import ollama
import openai
import pytest

from mlcc.artifact.folder import Artifact
from mlcc_compiler.checkpoint.folder import Checkpoint
from mlcc_compiler.compile import Progress, compile_model
from mlcc_compiler.options import Options
from mlcc_targets import Choices, get_target
from tests.compiler.models.helpers.checkpoints import SMALL
from tests.compiler.vision.checkpoints import FAMILIES
from tests.e2e.vision.families import FIRST, LETTERS, Oracle, save_family
from tests.runtime.multimodal.helpers.pictures import encoded, noise

if TYPE_CHECKING:
    import anthropic  # takes a second

NEW = 5
FILES = [
    encoded(noise(40, 24, 1)),
    encoded(noise(24, 40, 2), "WEBP", lossless=True),
    encoded(noise(32, 32, 3), "GIF"),
    encoded(noise(50, 50, 4), "JPEG"),
]
LIKE_OTHERS = (
    "qwen2_5_vl",
    "qwen3_vl_moe",
    "qwen3_5",
    "qwen3_5_moe",
    "llama4",
    "llava",
    "internvl",
    "mistral3",
    "pixtral",
    "gemma4",
    "gemma4-both-ways",
)
"""With --long only: their prompts are made as those of others here, or simpler."""
SHOWN = [
    pytest.param(name, marks=[pytest.mark.long] if name in LIKE_OTHERS else [])
    for name in FAMILIES
    if name != "smolvlm-odd"
]
LETTERS_ONLY = {
    str(token): -100
    for token in range(SMALL["vocab_size"])
    if not FIRST <= token < FIRST + len(LETTERS)
}
GREEDY: dict[str, Any] = {"temperature": 0, "ignore_eos": True, "logit_bias": LETTERS_ONLY}
KEYS = {"alice": "sk-alice", "bob": "sk-bob"}


@dataclass
class Served:
    url: str
    oracle: Oracle

    def openai(self, name: str = "alice") -> openai.OpenAI:
        return openai.OpenAI(base_url=f"{self.url}/v1", api_key=KEYS[name], max_retries=0)

    def anthropic(self, name: str = "alice") -> anthropic.Anthropic:
        import anthropic

        return anthropic.Anthropic(base_url=self.url, api_key=KEYS[name], max_retries=0)

    def ollama(self, name: str = "alice") -> ollama.Client:
        headers = {"Authorization": f"Bearer {KEYS[name]}"}
        return ollama.Client(host=self.url, headers=headers)

    def ask(self, text: str, files: list[bytes], name: str = "alice") -> Any:
        """A completion of a chat of one turn; @ in the text is an image."""
        return self.openai(name).chat.completions.create(
            model="it",
            messages=[{"role": "user", "content": parts_of(text, files)}],  # type: ignore[misc,list-item]
            max_tokens=NEW,
            logprobs=True,
            extra_body=GREEDY,
        )

    def expected(self, text: str, files: list[bytes]) -> tuple[str, list[float]]:
        return self.oracle.answer(self.oracle.rendered(("user", text)), files, NEW)


@pytest.fixture(scope="module", params=SHOWN)
def served(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp(request.param)
    model = save_family(request.param, folder)
    wanted = Options(quant="f32", max_batch=4, max_step_tokens=128)
    target, out = get_target("reference", Choices()), folder / "compiled"
    compile_model(Checkpoint.open(folder), target, out, wanted, Progress())
    info = Artifact.open(out).manifest.vision
    assert info is not None
    keys = [{"name": name, "key": key} for name, key in KEYS.items()]
    (folder / "keys.json").write_text(json.dumps({"keys": keys}))
    command = [sys.executable, "-m", "mlcc", "serve", str(out), "--port", "0", "--alias", "it"]
    process = subprocess.Popen(
        [*command, "--api-keys", str(folder / "keys.json")], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout
    try:
        found = re.search(r"http://[\d.:]+", process.stdout.readline())
        assert found
        yield Served(found[0], Oracle(request.param, model, info))
    finally:
        process.terminate()
        process.communicate(timeout=60)


def url(data: bytes) -> str:
    return f"data:;base64,{b64encode(data).decode()}"


def parts_of(text: str, files: list[bytes]) -> list[dict[str, Any]]:
    parts, images = list[dict[str, Any]](), iter(files)
    for number, words in enumerate(text.split("@")):
        if number:
            parts.append({"type": "image_url", "image_url": {"url": url(next(images))}})
        if words:
            parts.append({"type": "text", "text": words})
    return parts


CHATS: list[tuple[str, list[bytes]]] = [
    ("@what is this?", FILES[:1]),
    ("see @ and @, then @", [FILES[1], FILES[0], FILES[1]]),
    ("no image", []),
    ("@@ both?", FILES[2:]),
]


def test_images_and_texts_at_once_are_answered_as_transformers_does(served: Served) -> None:
    with ThreadPoolExecutor(len(CHATS)) as threads:
        answers = [*threads.map(lambda chat: served.ask(*chat), CHATS)]
    for (text, files), answer in zip(CHATS, answers, strict=True):
        (choice,), (wanted, logprobs) = answer.choices, served.expected(text, files)
        assert choice.message.content == wanted, text
        found = [token.logprob for token in choice.logprobs.content]
        assert found == pytest.approx(logprobs, abs=2e-4), text
        details = answer.usage.prompt_tokens_details
        assert bool(getattr(details, "image_tokens", 0)) == bool(files)


def test_three_clients_get_the_same_answer(served: Served) -> None:
    data = b64encode(FILES[0]).decode()
    wanted, _ = served.expected("@so?", FILES[:1])
    image = {"type": "base64", "media_type": "image/png", "data": data}
    blocks: Any = [{"type": "image", "source": image}, {"type": "text", "text": "so?"}]
    message = served.anthropic().messages.create(
        model="it",
        max_tokens=NEW,
        messages=[{"role": "user", "content": blocks}],
        extra_body=GREEDY,
    )
    assert message.content[0].type == "text" and message.content[0].text == wanted
    options: Any = {"num_predict": NEW, **GREEDY}
    chat = served.ollama().chat(
        "it", [{"role": "user", "content": "so?", "images": [data]}], options=options
    )
    assert chat.message.content == wanted
    events = served.openai().responses.create(
        model="it",
        max_output_tokens=NEW,
        input=[
            {
                "role": "user",
                "content": [
                    {"type": "input_image", "image_url": url(FILES[0]), "detail": "auto"},
                    {"type": "input_text", "text": "so?"},
                ],
            }
        ],
        extra_body=GREEDY,
    )
    assert events.output_text == wanted


def test_another_key_finds_nothing_of_an_image(served: Served) -> None:
    """A key's second question finds the image's rows and pages; another key's first, with the same
    bytes, reports none and gets the same answer."""
    text, files = "what do you see here? @ and then? go on.", [encoded(noise(32, 24, 9))]
    answers = [served.ask(text, files, name) for name in ("alice", "alice", "bob", "bob")]
    cached = [answer.usage.prompt_tokens_details.cached_tokens for answer in answers]
    assert cached[0] < 8 and cached[2] == 0, cached  # a chat's first letters at most
    assert cached[1] == cached[3] >= 16, cached
    assert len({answer.choices[0].message.content for answer in answers}) == 1


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "address": (
        {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}},
        "none is fetched here",
    ),
    "video": ({"type": "video_url", "video_url": {"url": url(b"x")}}, "'video_url'"),
    "audio": (
        {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}},
        "'input_audio'",
    ),
    "bitmap": (
        {"type": "image_url", "image_url": {"url": url(encoded(noise(8, 8), "BMP"))}},
        "send a PNG, JPEG, WebP or GIF image",
    ),
    "cut off": (
        {"type": "image_url", "image_url": {"url": url(FILES[0][:-40])}},
        "damaged PNG",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals_are_named(name: str, served: Served) -> None:
    part, words = REFUSED[name]
    messages: Any = [{"role": "user", "content": [part]}]
    with pytest.raises(openai.BadRequestError) as refused:
        served.openai().chat.completions.create(model="it", messages=messages, max_tokens=NEW)
    assert words in refused.value.message
