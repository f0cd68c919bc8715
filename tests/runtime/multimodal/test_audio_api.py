"""Sound in chats (`input_audio`): what reaches the engine, what is refused, and by which words."""

from __future__ import annotations

import sys
import wave
from array import array
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from math import sin
from typing import Any

import pytest

from mlcc.api.chat_template.template import ChatTemplate
from mlcc.api.openai.models import ModelInfo
from mlcc.api.schema.image_fields import left_out
from mlcc.artifact.schema import AudioInputInfo
from mlcc.device.toy.executor import ToyExecutor
from mlcc.engine.request import AudioClip, Request
from mlcc.model.model import ModelText
from mlcc.multimodal.audio.clips import AudioProcessor
from mlcc.service.engine_client import Job
from tests.helpers.service_calls import Calls, calls_to
from tests.runtime.multimodal.helpers.seeing_toy import (
    CAPACITY,
    FIRST,
    PARTS_TEMPLATE,
    SPECIAL,
    Letters,
    seeing,
    seeing_model,
)

MARK, BEGIN, END = "<|image_pad|>", "<start_of_image>", "<end_of_image>"
"""Special tokens of the toy, here those of sound."""
INFO = AudioInputInfo(
    processor="qwen2_audio",
    audio_token=MARK,
    audio_token_id=FIRST + SPECIAL.index(MARK),
    bins=80,
    clip_rows=100,
    pool=2,
    most_seconds=2,
    begin=BEGIN,
    end=END,
)
KNOWS = PARTS_TEMPLATE.replace(
    "{% if part.type == 'image' %}<image>", f"{{% if part.type == 'audio' %}}{BEGIN}{MARK}{END}"
)
STRINGS = "{% for m in messages %}({{ m.role }}){{ m.content }}{% endfor %}(assistant)"
Hearing = tuple[Calls, list[Request]]


def samples(seconds: float, pitch: float = 0.1) -> array[int]:
    if not pitch:  # silence, of minutes for a test of bounds
        return array("h", bytes(2 * int(16000 * seconds)))
    return array("h", (int(9000 * sin(pitch * i)) for i in range(int(16000 * seconds))))


def wav(seconds: float, pitch: float = 0.1) -> bytes:
    file = BytesIO()
    with wave.open(file, "wb") as opened:
        opened.setparams((1, 2, 16000, 0, "NONE", ""))
        opened.writeframes(samples(seconds, pitch).tobytes())
    return file.getvalue()


def flac(seconds: float) -> bytes:
    soundfile = pytest.importorskip("soundfile", reason="the extra `audio` is not installed")
    numpy = pytest.importorskip("numpy", reason="numpy makes the file")
    file = BytesIO()
    values = numpy.array(samples(seconds), dtype="int16")
    soundfile.write(file, values, 16000, format="FLAC", subtype="PCM_16")
    return file.getvalue()


ONE, TWO = wav(1), wav(0.5, 0.2)


def text_of(template: str) -> ModelText:
    return ModelText(
        "toy",
        Letters(),
        ChatTemplate(template, {}, SPECIAL, (), (MARK,), (BEGIN, END)),
        frozenset([0]),
        info=ModelInfo(hears=True),
        audio_input=INFO,
    )


@contextmanager
def hearing(template: str = KNOWS, has_tower: bool = True) -> Iterator[Hearing]:
    """The service of a toy that hears, and the requests that reach its engine."""
    text = text_of(template) if has_tower else text_of(template).without_sound()
    reached: list[Request] = []
    with calls_to(seeing_model(text, ToyExecutor(CAPACITY))) as calls:
        client = calls._caller._client
        submit = client.submit

        def recorded(requests: Any, seconds: float | None) -> Job:
            reached.extend(requests)
            return submit(requests, seconds)

        client.submit = recorded  # type: ignore[method-assign]
        yield calls, reached


@pytest.fixture(scope="module")
def toy() -> Iterator[Hearing]:
    with hearing() as made:
        yield made


def sound(data: bytes, **more: Any) -> dict[str, Any]:
    given = {"data": b64encode(data).decode(), "format": "wav", **more}
    return {"type": "input_audio", "input_audio": given}


def chat(*parts: Any, **more: Any) -> tuple[str, dict[str, Any]]:
    content = [{"type": "text", "text": part} if isinstance(part, str) else part for part in parts]
    body = {"messages": [{"role": "user", "content": content}], "max_tokens": 2, **more}
    return "/v1/chat/completions", body


def key_of(values: array[int]) -> list[bytes]:
    floats = array("f", (value / 32768 for value in values))
    return [clip.key for clip in AudioProcessor(INFO).clips(floats, "")]


@pytest.mark.parametrize("template", [KNOWS, STRINGS])
def test_sound_reaches_the_engine(template: str) -> None:
    """A second is 100 frames, 50 rows of the encoder, and 25 tokens."""
    with hearing(template) as (calls, reached):
        answer = calls.post(*chat("hear ", sound(ONE), " and ", sound(TWO), "!"))
        assert answer.status == 200, answer.body
        (request,) = reached
        first, second = (BEGIN + MARK * count + END for count in (25, 12))
        assert Letters().decode(request.prompt) == f"(user)hear {first} and {second}!(assistant)"
        assert [clip.key for clip in request.media] == [
            *key_of(samples(1)),
            *key_of(samples(0.5, 0.2)),
        ]
        assert all(isinstance(clip, AudioClip) for clip in request.media)
        details = answer.body["usage"]["prompt_tokens_details"]
        assert details["audio_tokens"] == 37 and "image_tokens" not in details


def test_a_flac_is_heard_as_the_wav_with_its_samples(toy: Hearing) -> None:
    calls, reached = toy
    for data, name in ((ONE, "wav"), (flac(1), "flac")):
        assert calls.post(*chat(sound(data, format=name))).status == 200
    assert reached[-1].media == reached[-2].media != ()


def test_the_prefix_cache_knows_a_sound(toy: Hearing) -> None:
    """The same sound again is found; another of as many tokens is not."""
    calls, _ = toy
    found = []
    for pitch in (0.3, 0.3, 0.31):
        body = calls.post(*chat("a fresh question, ", sound(wav(1.5, pitch)), "?" * 20)).body
        found.append(body["usage"]["prompt_tokens_details"]["cached_tokens"])
    assert found[0] < found[1] > found[2]
    assert found[1] >= 48 and found[2] < 32


def test_answers_depend_on_the_sound(toy: Hearing) -> None:
    answers = set()
    for pitch in (0.1, 0.2):
        more = {"max_tokens": 30, "ignore_eos": True, "temperature": 0}
        body = toy[0].post(*chat("hear ", sound(wav(1, pitch)), **more)).body
        answers.add(body["choices"][0]["message"]["content"])
    assert len(answers) == 2


def test_that_a_model_hears_is_shown(toy: Hearing) -> None:
    calls, _ = toy
    (model,) = calls.get("/v1/models").body["data"]
    assert model["input_modalities"] == ["text", "audio"]
    assert calls.get("/props").body["modalities"] == {"vision": False, "audio": True}


def test_a_message_cannot_write_a_sound(toy: Hearing) -> None:
    calls, reached = toy
    assert calls.post(*chat(MARK, sound(ONE), f"{BEGIN}{MARK}")).status == 200
    assert list(reached[-1].prompt).count(INFO.audio_token_id) == 25


WHERE = "messages[0].content[0].input_audio"
REFUSED: dict[str, tuple[tuple[str, dict[str, Any]], str, str, str]] = {
    "no base64": (
        chat({"type": "input_audio", "input_audio": {"data": "@@", "format": "wav"}}),
        f"{WHERE}.data", "invalid_audio", "send the bytes of a WAV or FLAC file",
    ),
    "no sound": (chat(sound(b"not a sound")), f"{WHERE}.data", "unsupported_file", "is no WAV"),
    "M4A": (chat(sound(b"\0\0\0\x20ftypM4A ")), f"{WHERE}.data", "unsupported_file", "ffmpeg -i"),
    "format": (
        chat(sound(ONE, format="wma")), f"{WHERE}.format", "invalid_value", "one of 'wav', 'flac'",
    ),
    "too long": (chat(sound(wav(2.1))), f"{WHERE}.data", "audio_too_long", "at most 2 s"),
    "longer than any": (
        chat(sound(wav(601, pitch=0))), f"{WHERE}.data", "invalid_file", "10 are the most",
    ),
    "too short": (chat(sound(wav(0.001))), f"{WHERE}.data", "audio_too_short", "too few to hear"),
    "seventeen": (
        chat(*[sound(TWO)] * 17),
        "messages[0].content[16].input_audio.data", "audio_too_large", "16 at most",
    ),
    "image": (
        chat({"type": "image_url", "image_url": "data:image/png;base64,AAAA"}),
        "messages[0].content[0].type", "unsupported_content_part", "'text' and 'input_audio'",
    ),
    "assistant": (
        ("/v1/chat/completions", {"messages": [{"role": "assistant", "content": [sound(ONE)]}]}),
        "messages[0].content[0].type", "unsupported_content_part", "input_audio",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_is_named(name: str, toy: Hearing, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "av", None)
    (path, body), param, code, words = REFUSED[name]
    answer = toy[0].post(path, body)
    assert answer.status == 400, answer.body
    error = answer.body["error"]
    assert (error["param"], error["code"]) == (param, code)
    assert words in error["message"]


def test_a_model_that_hears_nothing_refuses() -> None:
    with seeing(None) as (calls, reached):
        answer = calls.post(*chat("a", sound(ONE)))
        assert answer.status == 400 and not reached
        error = answer.body["error"]
        assert error["code"] == "unsupported_content_part"
        assert error["param"] == "messages[0].content[1].type"
        assert "load a model that hears" in error["message"]


def test_a_tools_image_becomes_a_note_beside_its_sound(toy: Hearing) -> None:
    calls, reached = toy
    call = {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    asked = [
        {"role": "user", "content": "look"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
    ]
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    result = {"role": "tool", "tool_call_id": "call_1", "content": [sound(ONE), image]}
    body = {"messages": [*asked, result], "max_tokens": 2}
    assert calls.post("/v1/chat/completions", body).status == 200
    prompt = Letters().decode(reached[-1].prompt)
    assert "[image left out: this model reads text and sound only]" in prompt
    assert [clip.key for clip in reached[-1].media] == key_of(samples(1))


def responses(*parts: Any, output: Any = None) -> tuple[str, dict[str, Any]]:
    """A request whose user sends these parts, or whose tool returned `output`."""
    items: list[Any] = [{"role": "user", "content": [*parts] or "look"}]
    if output is not None:
        call = {"call_id": "c", "name": "look", "arguments": "{}"}
        items += [{"type": "function_call", **call}]
        items += [{"type": "function_call_output", "call_id": "c", "output": output}]
    return "/v1/responses", {"input": items, "max_output_tokens": 2}


def anthropic(*blocks: Any, result: Any = None) -> tuple[str, dict[str, Any]]:
    """The same for Anthropic's API."""
    messages: list[Any] = [{"role": "user", "content": [*blocks] or "look"}]
    if result is not None:
        use = {"type": "tool_use", "id": "c", "name": "look", "input": {}}
        messages += [{"role": "assistant", "content": [use]}]
        found = {"type": "tool_result", "tool_use_id": "c", "content": result}
        messages += [{"role": "user", "content": [found]}]
    return "/v1/messages", {"model": "toy", "max_tokens": 2, "messages": messages}


PICTURE = {"type": "input_image", "image_url": "data:image/png;base64,AAAA"}
BLOCK = {"type": "image", "source": {"type": "base64", "data": "AAAA"}}


def test_responses_have_sound(toy: Hearing) -> None:
    """In a message, and in a tool's output."""
    calls, reached = toy
    asked = responses({"type": "input_text", "text": "hear "}, sound(ONE))
    outputs = responses(output=[sound(TWO), {"type": "input_text", "text": "heard"}])
    for (path, body), wanted in ((asked, samples(1)), (outputs, samples(0.5, 0.2))):
        answer = calls.post(path, body)
        assert answer.status == 200, answer.body
        assert [clip.key for clip in reached[-1].media] == key_of(wanted)
    long = calls.post(*responses(sound(wav(2.1)))).body["error"]
    assert (long["param"], long["code"]) == (
        "input[0].content[0].input_audio.data", "audio_too_long",
    )  # fmt: skip


@pytest.mark.parametrize(
    "request_",
    [responses(output=[PICTURE]), anthropic(result=[BLOCK])],
    ids=["responses", "anthropic"],
)
def test_notes_of_other_protocols_know_that_the_model_hears(request_: Any, toy: Hearing) -> None:
    calls, reached = toy
    assert calls.post(*request_).status == 200
    prompt = Letters().decode(reached[-1].prompt)
    assert "[image left out: this model reads text and sound only]" in prompt


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (responses(PICTURE), "this model sees no images"),
        (anthropic(BLOCK), "this model sees no images"),
        (anthropic(sound(ONE)), "'input_audio', which is not built"),
    ],
)
def test_refusals_of_other_protocols_are_true_of_a_model_that_hears(
    request_: Any, words: str, toy: Hearing
) -> None:
    answer = toy[0].post(*request_)
    assert answer.status == 400 and words in answer.body["error"]["message"]
    assert "text only" not in answer.body["error"]["message"]


def test_responses_refuse_sound_for_a_model_that_hears_nothing() -> None:
    with seeing(None) as (calls, reached):
        answer = calls.post(*responses(sound(ONE)))
        assert answer.status == 400 and not reached
        assert "this model hears nothing: send a transcript" in answer.body["error"]["message"]
        path, body = responses(output=[sound(ONE)])
        assert calls.post(path, body).status == 200
        prompt = Letters().decode(reached[-1].prompt)
        assert "[audio left out: this model reads text only]" in prompt


@pytest.mark.parametrize(
    ("sees", "hears", "read"),
    [
        (False, False, "text"),
        (True, False, "text and images"),
        (False, True, "text and sound"),
        (True, True, "text, images and sound"),
    ],
)
def test_a_note_names_all_that_the_model_reads(sees: bool, hears: bool, read: str) -> None:
    assert left_out("file").note(sees, hears) == f"[file left out: this model reads {read} only]"


def test_all_sounds_of_a_request_are_bounded(toy: Hearing) -> None:
    """Before anything is decoded: 14 MB are accepted as one, and refused as two."""
    big = b64encode(bytes(14_000_000)).decode()
    given = {"type": "input_audio", "input_audio": {"data": big, "format": "wav"}}
    answer = toy[0].post(*chat(given, given))
    assert answer.status == 400, answer.body
    assert answer.body["error"]["code"] == "audio_too_large"


def test_a_host_without_the_tower_refuses_sound() -> None:
    """The text part runs, and a note says so."""
    with hearing(has_tower=False) as (calls, reached):
        answer = calls.post(*chat(sound(ONE)))
        assert answer.status == 400 and not reached
        assert answer.body["error"]["code"] == "unsupported_content_part"
        assert calls.post(*chat("words")).status == 200
        (model,) = calls.get("/v1/models").body["data"]
        assert "input_modalities" not in model
    assert "nothing here computes sound" in text_of(KNOWS).without_sound().notes[-1]
