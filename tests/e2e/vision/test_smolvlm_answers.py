"""A SmolVLM from the bytes of images to the text of answers: the API and the command line against
transformers' processor and model. Small random weights, in float32 on the reference."""

from __future__ import annotations

import re
import subprocess
import sys
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import CliRunner

from mlcc import Engine
from mlcc.cli import cli
from mlcc.commands.chat import Chat
from mlcc.commands.chat_backend import LocalBackend
from mlcc.commands.terminal import Screen
from mlcc.engine_args import EngineArgs
from mlcc.errors import InvalidRequestError
from mlcc.loader import open_model
from mlcc.model.conversation import Conversation
from mlcc.model.session import Session
from mlcc_compiler.checkpoint.folder import Checkpoint
from mlcc_compiler.compile import Progress, compile_model
from mlcc_compiler.options import Options
from mlcc_targets import Choices, get_target
from tests.e2e.vision.smolvlm import NEW, Made, expected, save_smolvlm
from tests.runtime.multimodal.helpers.pictures import encoded, noise

FILES = [encoded(noise(90, 60, 1)), encoded(noise(40, 70, 2), "WEBP"), encoded(noise(64, 64, 3))]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """The parts of the model; `folder` is the compiled one's."""
    saved = save_smolvlm(tmp_path_factory.mktemp("smolvlm"))
    wanted = Options(quant="f32", max_batch=2, max_step_tokens=64)
    target, out = get_target("reference", Choices()), saved.folder / "compiled"
    return saved._replace(
        folder=compile_model(Checkpoint.open(saved.folder), target, out, wanted, Progress())
    )


@pytest.fixture(scope="module")
def engine(made: Made) -> Iterator[Engine]:
    with Engine(str(made.folder)) as opened:
        yield opened


def url(data: bytes) -> str:
    return f"data:;base64,{b64encode(data).decode()}"


def part(data: bytes) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url(data)}}


def words(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


CHATS: dict[str, tuple[list[dict[str, Any]], str, list[int]]] = {
    "one": (
        [{"role": "user", "content": [part(FILES[0]), words("what is this?")]}],
        "User:<image>what is this?<end_of_utterance>\nAssistant:", [0],
    ),
    "three in two turns": (
        [
            {"role": "user", "content": [words("a "), part(FILES[1]), words(" b"), part(FILES[0])]},
            {"role": "assistant", "content": "yes"},
            {"role": "user", "content": [words("and "), part(FILES[2])]},
        ],
        "User: a <image> b<image><end_of_utterance>\nAssistant: yes<end_of_utterance>\n"
        "User: and <image><end_of_utterance>\nAssistant:", [1, 0, 2],
    ),
    "text alone": (
        [{"role": "user", "content": "what is this?"}],
        "User: what is this?<end_of_utterance>\nAssistant:", [],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CHATS)
def test_answers_are_those_of_transformers(name: str, made: Made, engine: Engine) -> None:
    messages, text, shown = CHATS[name]
    answer = engine.chat.completions.create(
        messages=messages,
        temperature=0,
        max_tokens=NEW,
        ignore_eos=True,
        logit_bias={str(made.processor.image_token_id): -100},
    )
    assert answer.choices[0].message.content == expected(made, text, [FILES[i] for i in shown])
    details = answer.usage.prompt_tokens_details
    assert ("image_tokens" in str(details)) == bool(shown)


def test_another_picture_is_another_answer(made: Made, engine: Engine) -> None:
    """Also where the prompts are the same tokens: the prefix cache tells images apart."""

    def ask(data: bytes) -> tuple[list[float], int]:
        content = [part(data), words("what is this?")]
        answer = engine.chat.completions.create(
            messages=[{"role": "user", "content": content}],
            temperature=0, max_tokens=12, ignore_eos=True, logprobs=True,
            logit_bias={str(control): -100 for control in range(20)},
        )  # fmt: skip
        found = [token.logprob for token in answer.choices[0].logprobs.content]
        return found, answer.usage.prompt_tokens_details.cached_tokens

    first, second = encoded(noise(64, 64, 8)), encoded(noise(64, 64, 9))
    one, cached = ask(first)
    other, cached_of_other = ask(second)
    again, cached_of_again = ask(first)
    assert len(one) > 4 and again == pytest.approx(one, abs=1e-4)
    assert other != pytest.approx(one, abs=1e-2)
    assert cached_of_other < 16 <= cached_of_again
    assert cached < 16


def test_run_shows_an_image(made: Made, tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(FILES[0])
    options = ["--temperature", "0", "--max-tokens", str(NEW)]
    command = ["run", str(made.folder), "what is this?", "--image", str(tmp_path / "a.png")]
    result = CliRunner().invoke(cli, [*command, *options])
    assert result.exit_code == 0, result.output
    text = "User:<image>what is this?<end_of_utterance>\nAssistant:"
    assert result.output.startswith(expected(made, text, FILES[:1]))


class Quiet(Screen):
    """Keeps notes instead of printing."""

    def __init__(self) -> None:
        super().__init__()
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


def test_chat_shows_images_with_the_next_question(made: Made, tmp_path: Path) -> None:
    names = [tmp_path / "a.png", tmp_path / "b.webp"]
    for name, data in zip(names, FILES, strict=False):
        name.write_bytes(data)
    session = Session(open_model(made.folder, EngineArgs(str(made.folder))))
    screen = Quiet()
    sampling = {"temperature": 0, "max_tokens": NEW, "ignore_eos": True}
    chat = Chat(LocalBackend(session), Conversation(), sampling, screen)
    try:
        for name in names:
            assert chat._command(f"/image {name}")
        chat._turn("see?")
        assert chat._command(f"/save {tmp_path / 'kept.json'}")
        assert chat._command("/clear") and chat._command(f"/load {tmp_path / 'kept.json'}")
        chat._turn("and now?")
        assert chat._command(f"/image {tmp_path / 'none.png'}") and chat._command("/image")
    finally:
        session.close()
    assert "a.png, 90 x 60, goes with the next question" in screen.notes[0]
    assert "cannot be read (No such file" in screen.notes[-2] and "which file?" in screen.notes[-1]
    first = "User:<image><image>see?<end_of_utterance>\nAssistant:"
    answer = chat.conversation.turns[1]["content"]
    assert answer == expected(made, first, FILES[:2])
    second = f"{first} {answer}<end_of_utterance>\nUser: and now?<end_of_utterance>\nAssistant:"
    assert chat.conversation.turns[3]["content"] == expected(made, second, FILES[:2])


@pytest.mark.parametrize(
    ("options", "message"),
    [(["--image", "a.bmp"], "has no image in a format"), (["--raw"], "--image is for a chat")],
)
def test_run_refuses_by_name(
    options: list[str], message: str, made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.bmp").write_bytes(encoded(noise(8, 8), "BMP"))
    Path("a.png").write_bytes(FILES[0])
    result = CliRunner().invoke(cli, ["run", str(made.folder), "x", "--image", "a.png", *options])
    assert isinstance(result.exception, InvalidRequestError)
    assert message in str(result.exception)


def test_a_server_answers_all_protocols(made: Made) -> None:
    """Over HTTP, with the images decoded in the server's prompt processes."""
    command = [
        sys.executable,
        "-m",
        "mlcc",
        "serve",
        str(made.folder),
        "--port",
        "0",
        "--alias",
        "it",
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout
    try:
        found = re.search(r"http://[\d.:]+", process.stdout.readline())
        assert found
        wanted = expected(made, "User:<image>so?<end_of_utterance>\nAssistant:", FILES[:1])
        for path, body in _asked(b64encode(FILES[0]).decode()).items():
            answer = httpx.post(found[0] + path, json={**body, **_GREEDY}, timeout=60)
            assert answer.status_code == 200, answer.text
            assert wanted.strip() in _texts(answer.json()), path
        (model,) = httpx.get(f"{found[0]}/v1/models").json()["data"]
        assert model["input_modalities"] == ["text", "image"]
    finally:
        process.terminate()
        process.wait(timeout=60)


_GREEDY = {"temperature": 0, "ignore_eos": True, "logit_bias": {"1": -100}}


def _asked(data: str) -> dict[str, dict[str, Any]]:
    """The same question in each protocol, by address."""
    source = {"type": "base64", "media_type": "image/png", "data": data}
    shown = {"type": "input_image", "image_url": f"data:image/png;base64,{data}"}
    rendered = "User:<__media__>so?<end_of_utterance>\nAssistant:"
    options = {"num_predict": NEW, **_GREEDY}
    return {
        "/v1/chat/completions": {
            "messages": [{"role": "user", "content": [part(FILES[0]), words("so?")]}],
            "max_tokens": NEW,
        },
        "/v1/messages": {
            "model": "it", "max_tokens": NEW,
            "messages": [
                {"role": "user", "content": [{"type": "image", "source": source}, words("so?")]}
            ],
        },
        "/v1/responses": {
            "input": [{"role": "user", "content": [shown, {"type": "input_text", "text": "so?"}]}],
            "max_output_tokens": NEW,
        },
        "/api/chat": {
            "messages": [{"role": "user", "content": "so?", "images": [data]}],
            "stream": False, "options": options,
        },
        "/api/generate": {
            "prompt": "so?", "images": [data], "stream": False, "options": options,
        },
        "/completion": {
            "prompt": {"prompt_string": rendered, "multimodal_data": [data]}, "n_predict": NEW,
        },
    }  # fmt: skip


def _texts(value: Any) -> list[str]:
    """All texts in a JSON value, without white space around them."""
    if isinstance(value, str):
        return [value.strip()]
    values = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [text for each in values for text in _texts(each)]
