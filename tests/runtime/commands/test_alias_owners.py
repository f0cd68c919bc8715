"""`--alias NAME=MODEL`: MODEL is written as a user writes it, also otherwise than the server's."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlcc.commands.serve.models import names_of_one
from mlcc.errors import InvalidRequestError


@pytest.fixture(autouse=True)
def nothing_is_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for variable in ("XDG_CACHE_HOME", "XDG_DATA_HOME"):
        monkeypatch.setenv(variable, str(tmp_path / "none"))


@pytest.mark.parametrize("owner", ["qwen3:0.6b", "Qwen3:0.6B", "hf://Qwen/Qwen3-0.6B"])
def test_short_names_in_any_case(tmp_path: Path, owner: str) -> None:
    aliases = [("gpt-4o", owner), ("x", None)]
    assert names_of_one("Qwen3-0.6B", "qwen3:0.6b", aliases, tmp_path) == ("gpt-4o", "x")


def test_a_folder_is_the_same_however_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "small"
    folder.mkdir()
    for owner in ("small", "./small/", str(folder)):
        assert names_of_one("s", "small", [("x", owner)], folder) == ("x",)


@pytest.mark.parametrize("owner", ["gemma3:270m", "nothing", "hf://Qwen/Qwen3-4B"])
def test_another_model_is_refused(tmp_path: Path, owner: str) -> None:
    with pytest.raises(InvalidRequestError, match=f"--alias x={owner}: the model here is s"):
        names_of_one("s", "qwen3:0.6b", [("x", owner)], tmp_path)
