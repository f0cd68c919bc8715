"""`mlcc serve` of several models as a program, and the commands that talk to it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from mlcc.errors import UnsupportedError
from mlcc.server.web import page_folder

MLCC = (sys.executable, "-m", "mlcc")


@dataclass
class Many:
    """A server of the demo under two names."""

    url: str
    process: subprocess.Popen[str]
    environment: dict[str, str]

    def output(self, *words: str) -> str:
        done = subprocess.run(
            [*MLCC, *words], capture_output=True, text=True, env=self.environment, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture(scope="module")
def demo(compiled_demo: Callable[[str, str], Path]) -> Path:
    return compiled_demo("q4", "cpu")


@pytest.fixture(scope="module")
def many(demo: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Many]:
    folder = tmp_path_factory.mktemp("many")
    (folder / "models").mkdir()
    for name in ("one", "two"):
        (folder / "models" / name).symlink_to(demo)
    environment = {**os.environ, "XDG_STATE_HOME": str(folder), "PYTHONPATH": ":".join(sys.path)}
    alias = f"gpt-4o={folder / 'models' / 'one'}"
    command = [*MLCC, "serve", "--models", str(folder / "models"), "--alias", alias]
    with subprocess.Popen(
        [*command, "--port", "0", "--threads", "1"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=environment,
    ) as process:
        assert process.stdout
        found = re.search(r"http://[\d.:]+", process.stdout.readline())
        assert found
        yield Many(found[0], process, environment)
        process.terminate()


def test_the_start_says_where_the_page_is(many: Many) -> None:
    try:
        page_folder()
    except UnsupportedError:
        pytest.skip("the page is not built; python3 dev.py web")
    assert many.process.stdout
    lines = [many.process.stdout.readline().rstrip() for _ in range(3)]
    assert lines[1].startswith("curl ") and lines[2] == f"Chat page: {many.url}/"
    assert '<script type="module"' in httpx.get(many.url, headers={"Accept": "text/html"}).text


@pytest.mark.feature("several-models", "cpu", "runs")
def test_models_of_a_folder_are_loaded_when_they_are_asked_for(many: Many) -> None:
    rows = {row["id"]: row for row in httpx.get(f"{many.url}/v1/models").json()["data"]}
    assert rows["one"]["aliases"] == ["gpt-4o"] and rows["two"]["state"] == "unloaded"
    assert rows["one"]["context_length"] > 0
    words = many.output(
        "chat", "gpt-4o", "What is 17 + 25?", "--url", many.url, "--max-tokens", "8"
    )
    assert words.strip()
    rows = {row["id"]: row for row in json.loads(many.output("ps", "--json"))}
    assert (rows["one"]["state"], rows["two"]["state"]) == ("loaded", "unloaded")
    assert rows["one"]["pid"] == many.process.pid and rows["one"]["memory_bytes"] > 0
    tags = httpx.get(f"{many.url}/api/tags").json()["models"]
    assert [row["name"] for row in tags] == ["one:latest", "two:latest"]
    loaded = httpx.get(f"{many.url}/api/ps").json()["models"]
    assert [row["name"] for row in loaded] == ["one:latest"]
    answer = httpx.post(
        f"{many.url}/v1/messages",
        json={
            "model": "two",
            "max_tokens": 4,
            "messages": [{"role": "user", "content": "Hi"}],
        },
        timeout=60,
    ).json()
    assert answer["model"] == "two" and answer["content"]
    assert "is unloaded" in many.output("stop", "two")
    assert "two  unloaded" in many.output("ps")


def test_bench_of_a_server(many: Many) -> None:
    options = ("--prompt-tokens", "8", "--tokens", "8", "--runs", "1", "--json")
    report = json.loads(many.output("bench", "--url", many.url, "--name", "one", *options))
    assert report["runs"][0]["tokens"] == 8 and report["runs"][0]["first_token_s"] > 0


@pytest.mark.parametrize(
    ("tool", "has"),
    [
        ("claude", "ANTHROPIC_BASE_URL={url}\n"),
        ("codex", 'model_providers.mlcc.base_url="{url}/v1"'),
        ("opencode", '"baseURL": "{url}/v1"'),
    ],
)
def test_launch_says_what_to_type(many: Many, tool: str, has: str) -> None:
    words = many.output("launch", tool, "--print", "--model", "gpt-4o", "--", "hello")
    assert has.format(url=many.url) in words and "gpt-4o" in words
    assert words.rstrip().endswith("hello")


def test_what_cannot_be_served_together(demo: Path, tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).symlink_to(demo)
    two = [str(tmp_path / "one"), str(tmp_path / "two")]
    for words, hint in (
        ([*two, "--alias", "x"], "there are several models"),
        ([*two, "--web", str(tmp_path)], "--web shows one model"),
        (["--models", str(demo)], "holds no folder made by"),
        ([str(demo), "--alias", "x=other"], "the model here is demo"),
        ([str(demo), "--alias", "="], "is no name"),
    ):
        done = subprocess.run([*MLCC, "serve", *words], capture_output=True, text=True, check=False)
        assert done.returncode == 2 and hint in done.stderr, done.stderr


def test_stop_ends_the_server(many: Many) -> None:
    assert "ends" in many.output("stop", "--all")
    assert many.process.wait(60) in (0, -15, 143)
    assert many.output("ps") == ""
