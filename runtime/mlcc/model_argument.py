"""Checks whether MODEL on a command line can be a path or the name of a model.

The callers resolve the name. Standard library only.
"""

from __future__ import annotations

import re
from contextlib import suppress
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING

from mlcc.errors import CheckpointError

if TYPE_CHECKING:
    import click

HUB = "hf://"
MOST_HUB_CHARACTERS = 255
"""Of hf://org/name@revision: the hub's own bound for org/name is 96."""
_SHOWN = 60
_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


def model_argument(_context: click.Context, _parameter: click.Parameter, text: str) -> str:
    """The callback of MODEL: the text itself, or hf://org/name of a hub's name. Raises
    CheckpointError for what no system opens: too long a name, NUL; and for what may be either."""
    text = _hub_name(text)
    if reason := _impossible(text):
        shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}... ({len(text)} characters)"
        raise CheckpointError(
            f"{shown!r} can be no model: {reason}; give a folder made by `mlcc compile`, a "
            "Hugging Face folder or hf://org/name"
        )
    return text


def _hub_name(text: str) -> str:
    """org/name that is no path here is the hub's. A folder org that is here makes it doubtful."""
    name = text.partition("@")[0].partition(":")[0]
    if not _HUB_NAME.fullmatch(name) or ".." in text or name.endswith((".gguf", "/")):
        return text
    with suppress(OSError):
        if Path(text).exists():
            return text
        folder = Path(name).parent
        if folder.is_dir():
            near = get_close_matches(Path(name).name, [path.name for path in folder.iterdir()], n=1)
            local = f"{folder}/{near[0]}, or " if near else ""
            raise CheckpointError(
                f"{text}: there is no such folder; did you mean {local}{HUB}{text} of the hub?"
            )
    return HUB + text


def model_arguments(
    context: click.Context, parameter: click.Parameter, texts: tuple[str, ...]
) -> tuple[str, ...]:
    """`model_argument` for several MODELs."""
    return tuple(model_argument(context, parameter, text) for text in texts)


def _impossible(text: str) -> str:
    """Why no model has this name; "" if one may."""
    if not text:
        return "it is empty"
    if text.startswith(HUB):
        return f"more than {MOST_HUB_CHARACTERS} characters" * (len(text) > MOST_HUB_CHARACTERS)
    try:
        with suppress(FileNotFoundError, NotADirectoryError):
            (Path(text) / "config.json").stat()
    except OSError as error:  # too long a name, no right to look, a loop of links
        return error.strerror or str(error)
    except ValueError as error:  # NUL, or what the file system's encoding cannot say
        return str(error)
    return ""
