"""Notes about an opened model are printed by every command and logged by the server."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mlcc.commands.options import load_model
from mlcc.engine_args import EngineArgs
from mlcc.loader import open_model
from mlcc.model.model import Model
from mlcc.worker.process import EngineProcess
from tests.helpers.toy.toy_model import open_toy

NOTE = "room for 64 tokens only"


def open_noted(**_: Any) -> Model:
    model = open_toy()
    return replace(model, text=replace(model.text, notes=(NOTE,)))


def test_a_command_prints_the_notes_of_the_model_it_opens(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("mlcc.model_cache.resolve.resolve", lambda args: tmp_path)
    monkeypatch.setattr("mlcc.loader.opener", lambda path, args: open_noted)
    load_model(EngineArgs("x"))
    assert capsys.readouterr().err == f"note: {NOTE}\n"


def test_the_engines_process_sends_them() -> None:
    process = EngineProcess(open_noted)
    process.close()
    assert process.notes == (NOTE,)


def test_notes_come_from_the_artifact_and_from_loading_it(monkeypatch: pytest.MonkeyPatch) -> None:
    class Opened:
        notes = ("the CPU is unknown",)
        manifest = SimpleNamespace(
            adapters=None, encoder=None, vision=None, audio=None, audio_input=None
        )

    def load(artifact: Any, args: EngineArgs, *, note: Any, **_: Any) -> Any:
        note(NOTE)
        return open_toy().executor

    monkeypatch.setattr("mlcc.artifact.folder.Artifact.open", lambda path, progress: Opened())
    monkeypatch.setattr("mlcc.loader.open_executor", load)
    monkeypatch.setattr("mlcc.loader.kv_identity", lambda manifest: None)
    monkeypatch.setattr("mlcc.loader.text_of", lambda artifact, tokenizer: open_toy().text)
    assert open_model(Path("x")).text.notes == (*Opened.notes, NOTE)
