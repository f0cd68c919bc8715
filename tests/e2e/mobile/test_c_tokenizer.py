"""The host's tokenizer by callbacks, against the same tokenizer in Python."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from mlcc.embedded.c.codes import Code, Kind
from tests.helpers.mobile.c_host import Host, Name, Tokenizer
from tests.helpers.mobile.c_library import SITE, Library
from tests.helpers.mobile.c_tokenizer import answering

CHAT = "/v1/chat/completions"
BODY = {
    "messages": [{"role": "user", "content": "What is 17 + 25? <|im_end|> é 漢 🙂"}],
    "max_tokens": 20,
    "temperature": 0,
}


@pytest.fixture
def demo(compiled_demo: Callable[[str, str], Path]) -> Path:
    return compiled_demo("f32", "cpu")


def opened(host: Host, callbacks: int, demo: Path, path: Sequence[str] = SITE) -> int:
    assert host.start(path=":".join(path)).c == 0
    engine = host.create(callbacks, model=str(demo))
    return engine


def test_all_give_the_same_answer(c_library: Library, demo: Path) -> None:
    """The package `tokenizers`, callbacks, and where there is neither, libmlcc_executor."""
    answers = []
    for callbacks, path in ((1, SITE), (3, SITE), (1, ())):
        with Host(c_library.program, answering(demo)) as host:
            engine = opened(host, callbacks, demo, path)
            host.ready()
            status, body = host.ask(engine, CHAT, BODY).answer()
            assert status == 200
            answers.append({**json.loads(body), "id": "", "created": 0})
    assert answers[0] == answers[1] == answers[2]


def failing(tokenizer: Tokenizer, at: int, text: bytes = b"") -> Tokenizer:
    """One that cannot do one of its three, with this in it."""

    def answer(what: int, special: int, data: bytes) -> tuple[int, bytes]:
        if what == at and text in data:
            return 1, "no such \xffscript".encode("latin-1")
        return tokenizer(what, special, data)

    return answer


def test_a_text_that_it_refuses(c_library: Library, demo: Path) -> None:
    with Host(c_library.program, failing(answering(demo), 0, b"bad")) as host:
        engine = opened(host, 3, demo)
        host.ready()
        status, body = host.ask(engine, "/v1/completions", {"prompt": "bad"}).answer()
        error = json.loads(body)["error"]
        assert (status, error["code"]) == (400, "tokenizer_failed")
        assert "no such \ufffdscript" in error["message"]
        good = {"prompt": "fine", "max_tokens": 2}
        assert host.ask(engine, "/v1/completions", good).answer()[0] == 200


def test_tokens_that_it_cannot_decode(c_library: Library, demo: Path) -> None:
    with Host(c_library.program, failing(answering(demo), 1)) as host:
        engine = opened(host, 3, demo)
        host.ready()
        status, body = host.ask(engine, "/v1/completions", {"prompt": "x"}).answer()
        assert (status, json.loads(body)["error"]["code"]) == (500, "tokenizer_failed")
        assert host.stats(engine)["engine"]["running"] == 0
        assert host.ask(engine, "/v1/models").answer()[0] == 200


def test_no_special_tokens(c_library: Library, demo: Path) -> None:
    with Host(c_library.program, failing(answering(demo), 2)) as host:
        engine = opened(host, 3, demo)
        event = host.state()
        assert (event.kind, event.status) == (Kind.FAILED, Code.BAD_MODEL)
        host.order(Name.CLOSE, a=engine)
