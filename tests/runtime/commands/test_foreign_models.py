"""Machine code from another source runs after a one-line notice, once."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from mlcc.artifact.checks.trust import is_trusted, trust
from mlcc_compiler.checkpoint.folder import Checkpoint
from mlcc_compiler.compile import Progress, compile_model
from mlcc_compiler.options import Options
from mlcc_targets import get_target
from tests.runtime.commands.test_commands import mlcc, one_line_error
from tests.runtime.commands.tiny_checkpoint import write_checkpoint

NOTICE = "was not compiled here by you; its machine code runs with your rights"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    checkpoint = Checkpoint.open(write_checkpoint(folder / "tiny"))
    return compile_model(checkpoint, get_target("cpu"), folder / "out", Options(), Progress())


def test_what_was_compiled_here_is_known_and_so_is_its_copy(model: Path, tmp_path: Path) -> None:
    assert is_trusted(model) and is_trusted(Path(shutil.copytree(model, tmp_path / "copy")))
    (tmp_path / "copy" / "mlcc.json").write_bytes(b"another")
    assert not is_trusted(tmp_path / "copy") and not is_trusted(tmp_path / "none")


def test_a_home_that_cannot_be_written_keeps_nothing(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/dev/null/x")
    trust(model)
    assert not is_trusted(model)


def test_a_foreign_model_is_announced_once(model: Path, tmp_path: Path) -> None:
    state = {"XDG_STATE_HOME": str(tmp_path)}
    words = ("run", model, "hi", "--max-tokens", "1")
    first, second = (mlcc(*words, **state) for _ in range(2))
    assert first.returncode == second.returncode == 0, first.stderr
    assert first.stderr.splitlines()[0] == f"note: {model} {NOTICE}"
    assert NOTICE not in second.stderr
    assert NOTICE not in mlcc(*words, XDG_STATE_HOME=os.environ["XDG_STATE_HOME"]).stderr


def test_a_cloned_checkpoint_with_a_library_is_not_run(model: Path, tmp_path: Path) -> None:
    cloned = write_checkpoint(tmp_path / "cloned")
    shutil.copytree(model, cloned, dirs_exist_ok=True)
    for command in (("chat", cloned, "hi"), ("run", cloned, "hi"), ("serve", cloned)):
        assert "remove mlcc.json" in one_line_error(mlcc(*command, XDG_STATE_HOME=str(tmp_path)))
