"""The commands with a model of two ranks: equal to one process; if a rank is killed, the server
reports a typed error and continues."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.helpers.processes import below, command_of
from tests.runtime.commands.tiny_checkpoint import write_checkpoint
from tests.runtime.tensor_parallel.split_models import compiled

MLCC = [sys.executable, "-m", "mlcc"]
FOLLOWER = b"mlcc.device.parallel.rank_main"
LONG = 8000
"""Tokens of an answer that takes a second, so that an action after its first token is in time."""


@pytest.fixture(scope="module")
def artifacts(tiny: Path) -> list[Path]:
    """Artifacts for one process and for two."""
    return [compiled(tiny, ranks, quant="f32") for ranks in (1, 2)]


def mlcc(*words: object) -> str:
    done = subprocess.run(
        [*MLCC, *map(str, words)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.feature("ranks", "cpu", "runs")
@pytest.mark.parametrize("command", ["run", "chat"])
def test_answers_as_one_process_does(artifacts: list[Path], command: str) -> None:
    options = ("--max-tokens", 16, "--temperature", 0, "--threads", 2)
    one, two = (mlcc(command, artifact, "hello", *options) for artifact in artifacts)
    assert one == two and len(one.strip()) > 3


def test_eval_is_as_of_one_process(artifacts: list[Path], tmp_path: Path) -> None:
    texts = tmp_path / "texts.jsonl"
    texts.write_text(json.dumps({"text": "What is it, and where does it come from? " * 2}) + "\n")
    options = ("--text", texts, "--json", "--threads", 2)
    one, two = (json.loads(mlcc("eval", artifact, *options)) for artifact in artifacts)
    assert one["perplexity"] > 1
    assert two["perplexity"] == pytest.approx(one["perplexity"], rel=1e-4)


class Server:
    """`mlcc serve` of two ranks."""

    def __init__(self, url: str, process: subprocess.Popen[str]) -> None:
        self.url, self.process = url, process

    def rank(self) -> int:
        """The process of rank 1."""
        (found,) = [pid for pid in below(self.process.pid) if FOLLOWER in command_of(pid)]
        return found

    def asked(self, **more: object) -> dict[str, Any]:
        messages = [{"role": "user", "content": "hello"}]
        return {"messages": messages, "temperature": 0, "ignore_eos": True, **more}

    def chat(self) -> Any:
        place = f"{self.url}/v1/chat/completions"
        answer = httpx.post(place, json=self.asked(max_tokens=16), timeout=60)
        assert answer.status_code == 200, answer.text
        return answer.json()["choices"][0]["message"]["content"]

    def broken(self) -> dict[str, Any]:
        """The error that a stream ends with whose rank is killed behind its first text: an answer
        of which nothing is known is asked for again."""
        place, last, killed = f"{self.url}/v1/chat/completions", "", False
        rank, asked = self.rank(), self.asked(max_tokens=LONG, stream=True)
        with httpx.stream("POST", place, json=asked, timeout=60) as answer:
            assert answer.status_code == 200
            for line in answer.iter_lines():
                last = line.removeprefix("data: ") or last
                if not killed and json.loads(last)["choices"][0]["delta"].get("content"):
                    os.kill(rank, signal.SIGKILL)
                    killed = True
        return dict(json.loads(last)["error"])


@pytest.fixture(scope="module")
def server(tmp_path_factory: Any) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("ranks-long") / "model"
    model = write_checkpoint(folder, positions=LONG + 192)
    artifact = compiled(model, 2, quant="f32", context=LONG + 192)
    command = [*MLCC, "serve", str(artifact), "--port", "0", "--threads", "2"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout
    try:
        line = process.stdout.readline()
        found = re.search(r"http://[\d.:]+", line)
        assert found, line
        yield Server(found[0], process)
    finally:
        started = below(process.pid)
        process.terminate()
        process.wait(timeout=60)
        assert not [pid for pid in started if FOLLOWER in command_of(pid)]


def test_a_server_whose_idle_rank_is_killed_answers_as_before(server: Server) -> None:
    """No answer is lost: the engine is started again, with both ranks."""
    before, answer = server.rank(), server.chat()
    os.kill(before, signal.SIGKILL)
    assert server.chat() == answer
    assert server.rank() != before


def test_a_stream_whose_rank_is_killed_ends_with_a_typed_error(server: Server) -> None:
    answer = server.chat()
    error = server.broken()
    assert error["code"] == "engine_died", error
    assert "rank 1 of 2 ended (signal 9)" in error["message"]
    assert server.chat() == answer
