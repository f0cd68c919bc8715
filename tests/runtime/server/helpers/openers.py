"""What processes of these tests open: models and texts that take long, fail or kill their process.

Each process that a test starts imports this module to find its function. It therefore imports no
pytest, httpx or service, which take three times as long as the toy itself.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mlcc.api.chat_template.template import ChatTemplate, ChatText
from mlcc.errors import ArtifactError
from mlcc.model.model import Model, ModelText
from tests.helpers.toy.toy_model import open_toy, open_watched_toy, toy_text

JOB_S = 5.0
"""Ample for a short prompt on a busy machine."""


def open_counted(folder: str, progress: Callable[[int, int], None]) -> Model:
    """Waits while the folder has a `held`; writes down that it was opened, and by which process,
    and says that it has read 43 of 100 bytes."""
    progress(43, 100)
    with (Path(folder) / "opened").open("a") as file:
        file.write(f"{os.getpid()}\n")
    while (Path(folder) / "held").exists():
        time.sleep(0.01)
    return open_watched_toy(folder)


def open_if(file: Path) -> Model:
    """Fails unless the file exists."""
    if not file.exists():
        raise ArtifactError("the folder is gone; compile it again")
    return open_toy()


def open_or_die(file: Path) -> Model:
    """Removes the file if it exists, and kills its process."""
    if file.exists():
        file.unlink()
        os.kill(os.getpid(), signal.SIGKILL)
    return open_toy()


@dataclass
class Hostile(ChatTemplate):
    """Executes the text of the first message, as a template that escaped its budget would."""

    def render(self, messages: Sequence[Mapping[str, Any]], **other: Any) -> ChatText:
        match messages[0]["content"]:
            case "sleep":
                time.sleep(3600)
            case "eat":
                return ChatText("x" * (4 << 30), True)
            case "crash":
                os.abort()
            case text if text.startswith("crash twice "):
                mark = Path(text.removeprefix("crash twice "))
                crashes = mark.stat().st_size if mark.exists() else 0
                if crashes < 2:
                    mark.write_text("x" * (crashes + 1))
                    os.kill(os.getpid(), signal.SIGKILL)
            case "bug":
                raise KeyError("a bug")
        return ChatText("fine", True, ("fine",))


def hostile_text() -> ModelText:
    return replace(toy_text(), chat_template=Hostile(None))


def no_text() -> ModelText:
    raise ArtifactError("the tokenizer is gone")


def open_third_time(mark: Path) -> ModelText:
    """Kills its process twice; the file counts."""
    starts = mark.stat().st_size if mark.exists() else 0
    if starts < 2:
        mark.write_text("x" * (starts + 1))
        os.kill(os.getpid(), signal.SIGKILL)
    return toy_text()


def open_never() -> ModelText:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


def open_slowly() -> ModelText:
    """Takes longer than a job may."""
    time.sleep(JOB_S + 0.5)
    return toy_text()
