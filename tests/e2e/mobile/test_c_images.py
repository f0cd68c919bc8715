"""Images through the C library where Python has no Pillow, as on phones: the host's callback
decodes them. Answers are those of Pillow, and of transformers."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest

from tests.e2e.mobile.test_c_requests import CHAT, SEEING, chat, shown
from tests.helpers.mobile.c_host import Host
from tests.helpers.mobile.c_library import SITE, Library
from tests.helpers.mobile.seeing import QUESTIONS, answer, compiled, decoded, request

EVENTS, IMAGES = 1, 8


@pytest.mark.feature("c-images", "cpu", "runs")
def test_answers_and_keys_are_those_of_pillow(c_library: Library) -> None:
    with Host(c_library.program, decoded) as host:
        assert host.start(path=":".join(SITE)).c == 0
        found = []
        for name, callbacks in ((SEEING, EVENTS), (f"{SEEING}_without_pillow", EVENTS | IMAGES)):
            engine = host.create(callbacks, open=name)
            assert host.ready()["notes"] == []
            status, body = host.ask(engine, CHAT, shown()).answer()
            assert status == 200, body
            found.append({**json.loads(body), "id": "", "created": 0})
        assert found[0] == found[1]
        assert found[0]["usage"]["prompt_tokens_details"]["image_tokens"] > 0


WRONG: dict[str, tuple[int, bytes, str]] = {
    "fails": (1, b"no decoder for this", "that this app cannot decode (no decoder for this)"),
    "nothing": (0, b"", "decoded to nothing"),
    "another size": (0, struct.pack("=II", 2, 2) + bytes(12), "another size than its header says"),
    "cut off": (0, struct.pack("=II", 40, 30) + bytes(12), "fewer or more pixels"),
}


def test_a_decoder_that_is_wrong_fails_its_request_alone(c_library: Library) -> None:
    answers = iter(WRONG.values())

    def wrong(what: int, special: int, data: bytes) -> tuple[int, bytes]:
        return next(answers)[:2]

    with Host(c_library.program, wrong) as host:
        assert host.start(path=":".join(SITE)).c == 0
        engine = host.create(EVENTS | IMAGES, open=f"{SEEING}_without_pillow")
        host.ready()
        for _, _, message in WRONG.values():
            status, body = host.ask(engine, CHAT, shown()).answer()
            error = json.loads(body)["error"]
            assert (status, error["code"]) == (400, "invalid_image"), error
            assert message in error["message"]
        assert host.ask(engine, CHAT, chat()).answer()[0] == 200


@pytest.mark.feature("c-images", "cpu", "runs")
@pytest.mark.feature("llava-onevision", "cpu", "runs")
def test_a_model_answers_as_transformers_does(c_library: Library, tmp_path: Path) -> None:
    """Compiled kernels, and no package beside the zip with mlcc's modules."""
    out, oracle = compiled(tmp_path)
    with Host(c_library.program, decoded) as host:
        assert host.start(path="").c == 0
        engine = host.create(EVENTS | IMAGES, model=str(out))
        assert not [note for note in host.ready()["notes"] if "image" in note]
        for text, files in QUESTIONS:
            status, body = host.ask(engine, CHAT, request(text, files)).answer()
            assert status == 200, body
            found = json.loads(body)["choices"][0]["message"]["content"]
            assert found == answer(oracle, text, files)
