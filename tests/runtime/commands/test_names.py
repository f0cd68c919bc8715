"""Short names: the built-in table, the user's own, and names as people type them.

The hub is a server on 127.0.0.1 that speaks its API.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from mlcc import short_names
from mlcc.cli import cli
from mlcc.errors import CheckpointError, InvalidRequestError
from mlcc.model_argument import full_name
from mlcc_compiler.checkpoint.hub import parse_source
from mlcc_compiler.models.registry import ARCHITECTURES, ENCODERS
from tests.compiler.weights.fake_hub import REPO, FakeHub, serving
from tests.helpers import shared
from tests.runtime.commands.small_site import serving_files
from tests.runtime.commands.tiny_checkpoint import write_checkpoint

TINY = {"tiny": {"model_type": "llama", "default": "1m", "tags": {"1m": REPO, "2m": "org/two"}}}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No stored models, no table of the user's."""
    shared.own_cache(tmp_path)
    for name in ("XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    return tmp_path


def table(families: object, form: object = 1) -> bytes:
    return json.dumps({"format": form, "families": families}).encode()


def output(*words: str) -> str:
    result = CliRunner().invoke(cli, words, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_every_built_in_name_is_of_a_known_architecture() -> None:
    families = short_names.families()
    assert len(families) > 25
    for name, family in families.items():
        assert family.model_type in {**ARCHITECTURES, **ENCODERS}, name
        for repository in family.tags.values():
            assert parse_source(f"hf://{repository}").repo == repository.partition(":")[0]


@pytest.mark.parametrize(
    ("text", "repository"),
    [
        ("qwen3:0.6b", "Qwen/Qwen3-0.6B"),
        ("Qwen3:0.6B", "Qwen/Qwen3-0.6B"),
        ("qwen3", "Qwen/Qwen3-8B"),
        ("qwen3:latest", "Qwen/Qwen3-8B"),
        ("llama3.2:1b", "unsloth/Llama-3.2-1B-Instruct"),
    ],
)
def test_a_short_name_is_a_repository(text: str, repository: str) -> None:
    assert full_name(text) == f"hf://{repository}"


def test_a_file_or_folder_of_that_name_comes_first(
    monkeypatch: pytest.MonkeyPatch, home: Path
) -> None:
    monkeypatch.chdir(home)
    (home / "qwen3").mkdir()
    assert full_name("qwen3") == "qwen3"


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("qwen3:0.7b", "did you mean qwen3:0.6b or qwen3:1.7b"),
        ("qwne3:0.6b", "did you mean qwen3:0.6b"),
        ("smolm2", "did you mean smollm2"),
        ("xyzzy", "give one, or org/name of the Hugging Face Hub"),
    ],
)
def test_a_mistyped_name_is_corrected(text: str, hint: str) -> None:
    with pytest.raises(CheckpointError) as caught:
        full_name(text)
    assert hint in caught.value.message and text in caught.value.message


def test_the_users_own_table(home: Path) -> None:
    source = home / "own.json"
    source.write_bytes(table(TINY))
    digest = hashlib.sha256(source.read_bytes()).hexdigest()
    with pytest.raises(InvalidRequestError, match=f"has SHA-256 {digest}, not 00"):
        output("names", "update", str(source), "--sha256", "00")
    assert "qwen3" in output("names")
    printed = output("names", "update", str(source), "--sha256", digest.upper())
    assert f"sha256 {digest}" in printed and "2 short names: 2 added" in printed
    assert full_name("tiny") == f"hf://{REPO}" and "qwen3" not in output("names")
    assert short_names.parse(output("names", "--json").partition("note:")[0].encode(), "printed")
    output("names", "reset")
    assert full_name("qwen3:0.6b") == "hf://Qwen/Qwen3-0.6B"


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\xff", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"[]", 'no "format": 1'),
        (table(TINY, 2), 'no "format": 1'),
        (table([]), "must be an object"),
        (table({"Tiny": TINY["tiny"]}), "lower case"),
        (table({"tiny": {"tags": {}}}), "have tags"),
        (table({"tiny": {"default": "a", "tags": {"a": "../../etc/passwd"}}}), "no repository"),
        (table({"tiny": {"default": "a", "tags": {"a": "https://x.org/y"}}}), "not org/name"),
        (table({"tiny": {"default": "a", "tags": {"a": 3}}}), "no repository"),
        (table({"tiny": {"default": "b", "tags": {"a": REPO}}}), "none of its tags"),
    ],
)
def test_a_bad_table_changes_nothing(data: bytes, reason: str, home: Path) -> None:
    source = home / "own.json"
    source.write_bytes(data)
    with pytest.raises(InvalidRequestError, match=reason):
        output("names", "update", str(source))
    assert not short_names.user_table().exists()


def test_a_large_file_and_a_foreign_address_are_refused(home: Path) -> None:
    large = home / "large.json"
    large.write_bytes(b" " * (short_names.MOST_BYTES + 1))
    with pytest.raises(InvalidRequestError, match="larger than 1 MiB"):
        output("names", "update", str(large))
    for url in ("http://example.org/names.json", "ftp://localhost/x", "file:///etc/hostname"):
        with pytest.raises(InvalidRequestError, match="no https URL"):
            output("names", "update", url)


def test_a_table_of_a_url(home: Path) -> None:
    files = {"/names.json": table(TINY), "/large.json": b" " * (short_names.MOST_BYTES + 1)}
    with serving_files(files, {"/moved.json": "http://example.org/names.json"}) as url:
        assert "2 short names" in output("names", "update", f"{url}/names.json")
        assert full_name("tiny") == f"hf://{REPO}"
        for path, reason in (("large", "larger"), ("moved", "no https URL"), ("none", "404")):
            with pytest.raises(InvalidRequestError, match=reason):
                output("names", "update", f"{url}/{path}.json")
    assert full_name("tiny") == f"hf://{REPO}"


def run_mlcc(home: Path, url: str, *words: str) -> subprocess.CompletedProcess[str]:
    """`mlcc` in a process: the hub's library reads its environment once."""
    dropped = ("HF_", "HUGGING", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http", "all_proxy")
    clean = {k: v for k, v in os.environ.items() if not k.startswith(dropped)}
    clean |= {"HF_HOME": str(home / "hub"), "HF_ENDPOINT": url, "HF_HUB_DISABLE_XET": "1"}
    clean |= {"PYTHONPATH": os.pathsep.join(sys.path), "HF_HUB_ETAG_TIMEOUT": "2"}
    command = [sys.executable, "-m", "mlcc", *words]
    return subprocess.run(command, env=clean, capture_output=True, text=True, timeout=240)


def test_one_line_from_a_short_name_to_an_answer(home: Path) -> None:
    checkpoint = write_checkpoint(home / "tiny")
    hub = FakeHub({path.name: path.read_bytes() for path in checkpoint.iterdir()})
    short_names.user_table().parent.mkdir(exist_ok=True)
    short_names.store(table(TINY), "test")
    words = (
        "run",
        "tiny:1m",
        "Hi",
        "--target",
        "reference",
        "--temperature",
        "0",
        "--max-tokens",
        "3",
    )
    with serving(hub):
        first = run_mlcc(home, hub.url, *words)
        assert first.returncode == 0, first.stderr
        asked = len(hub.log)
    again = run_mlcc(home, hub.url, *words)
    assert asked and again.stdout == first.stdout
    offline = run_mlcc(home, "http://127.0.0.1:9", "run", "tiny:2m", "Hi")
    errors = [line for line in offline.stderr.splitlines() if line.startswith("error:")]
    assert len(errors) == 1 and "the hub cannot be reached" in errors[0]
    assert "org/tiny" in output("show", "TINY:1m")
