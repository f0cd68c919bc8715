"""Resolves MODEL of a command line or of `Engine`: a path, a repository of the hub, a stored model
or a short name.

The callers open or fetch it.
"""

from __future__ import annotations

import re
from contextlib import suppress
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING

from mlcc.errors import CheckpointError
from mlcc.short_names import find, near

if TYPE_CHECKING:
    import click

HUB = "hf://"
MOST_HUB_CHARACTERS = 255
"""Of hf://org/name@revision: the hub's own bound for org/name is 96."""
_SHOWN = 60
_MOST_HINTS = 6
_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(:[A-Za-z0-9][\w.-]*)?")
"""A name that is neither a path nor a repository: `demo`, `qwen3:0.6b`."""


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


def remote_name(text: str) -> str | None:
    """hf://org/name of a repository or a short name; None for all else, such as a path. For names
    that come from a client of a server."""
    name = text.removeprefix(HUB)
    if len(name) > MOST_HUB_CHARACTERS:
        return None
    if _HUB_NAME.fullmatch(name):
        return HUB + name
    repository = find(name) if _NAME.fullmatch(name) else None
    return HUB + repository if repository else None


def full_name(text: str) -> str:
    """A path or hf://... as it is, the name of a stored model, or hf://org/name of a short name.

    Raises CheckpointError for a name that neither the store nor the table of short names has. Not
    for a model of a server, which has names of its own.
    """
    from mlcc.model_cache.store import names_like, stored_name

    if not _NAME.fullmatch(text) or Path(text).exists():
        return text
    if name := stored_name(text):
        return name
    if repository := find(text):
        return HUB + repository
    close = [*names_like(text), *near(text)]
    hint = f"; did you mean {' or '.join(close[:_MOST_HINTS])}?" if close else ""
    raise CheckpointError(
        f"{text}: does not exist: it is no file or folder, no name of `mlcc list` and no short "
        f"name of `mlcc names`{hint or '; give one, or org/name of the Hugging Face Hub'}"
    )


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
