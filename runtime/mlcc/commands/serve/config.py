"""`mlcc serve --config FILE.toml` and the `MLCC_*` environment variables.

Both name an option as its flag does: `--max-batch 8` is `max-batch = 8` (or `max_batch`) in the
file and `MLCC_MAX_BATCH=8` in the environment. MODEL is `model` and `MLCC_MODEL`. A flag wins over
the environment, the environment over the file, the file over the default.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from mlcc.commands.options import Devices, note
from mlcc.errors import InvalidRequestError
from mlcc.util.extras import require

PREFIX = "MLCC_"
_NOT_IN_FILES = ("config", "help")
_KINDS: tuple[tuple[type, tuple[type, ...], str], ...] = (
    (click.types.BoolParamType, (bool,), "true or false"),
    (click.types.IntParamType, (int,), "an integer"),
    (click.types.FloatParamType, (int, float), "a number"),
    (Devices, (int, str, list), 'an integer, or a string such as "0,1"'),
)
"""click's type, the accepted TOML types, and their description; other options take a string."""


class Secret(click.types.StringParamType):
    """A string that is one value in an environment variable, even with separators in it."""

    def split_envvar_value(self, rv: str) -> tuple[str]:
        """The whole value."""
        return (rv,)


def key_of(parameter: click.Parameter) -> str:
    """The key of an option in a file: its flag without dashes in front."""
    if isinstance(parameter, click.Argument):
        return "model"
    return max(parameter.opts, key=len).lstrip("-")


def variable_of(parameter: click.Parameter) -> str:
    """The environment variable of an option."""
    return PREFIX + key_of(parameter).replace("-", "_").upper()


def with_variables(command: click.Command) -> click.Command:
    """Give each option of a command its environment variable."""
    for parameter in command.params:
        parameter.envvar = variable_of(parameter)
    return command


def config_callback(
    context: click.Context, _parameter: click.Parameter, path: Path | None
) -> Path | None:
    """The callback of `--config`, which is eager: the file's values become defaults of the others.
    Raises InvalidRequestError for a file that cannot be read, unknown keys and wrong types."""
    if path is not None:
        table = _read(path)
        context.default_map = _checked(path, table, context)
        if "api-key" in table or "api_key" in table:
            _note_readable(path)
    return path


def _read(path: Path) -> dict[str, Any]:
    if sys.version_info < (3, 11):
        require("tomli", "serve", "--config")
    toml = import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    try:
        table: dict[str, Any] = toml.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise _wrong(f"--config {path}: cannot be read ({error.strerror})") from error
    except UnicodeDecodeError:
        raise _wrong(f"--config {path}: is not UTF-8; save it as that") from None
    except toml.TOMLDecodeError as error:
        raise _wrong(f"--config {path}: is not TOML ({error}); correct it there") from None
    return table


def _checked(path: Path, table: dict[str, Any], context: click.Context) -> dict[str, Any]:
    """Values by the names of click's parameters."""
    known = {
        key_of(parameter): parameter
        for parameter in context.command.params
        if parameter.name not in _NOT_IN_FILES
    }
    found: dict[str, Any] = {}
    for key, value in table.items():
        parameter = known.get(key.replace("_", "-"))
        if parameter is None:
            raise _wrong(f"--config {path}: there is no option {key[:40]!r}{_nearest(key, known)}")
        name = str(parameter.name)
        if name in found:
            raise _wrong(f"--config {path}: {key_of(parameter)} is given twice; leave one out")
        found[name] = _value(path, key, value, parameter, context)
    return found


def _nearest(key: str, known: Iterable[str]) -> str:
    near = get_close_matches(key.replace("_", "-"), known, n=1)
    hint = f"; did you mean {near[0]}?" if near else "."
    return f"{hint} `mlcc serve --help` lists the options"


def _value(
    path: Path, key: str, value: Any, parameter: click.Parameter, context: click.Context
) -> Any:
    """A value for click. Raises InvalidRequestError, without the value in its message: it may be a
    secret."""
    several = parameter.nargs == -1 or getattr(parameter, "multiple", False)
    if isinstance(parameter, click.Argument) and isinstance(value, str):
        value = [value]
    if several and not isinstance(value, list):
        raise _wrong(f'--config {path}: {key} must be a list, as in {key} = ["..."]')
    for each in value if several else [value]:
        kinds, words = _kinds_of(parameter)
        if not isinstance(each, kinds) or (isinstance(each, bool) and bool not in kinds):
            each_of = "a list, each of it " if several else ""
            raise _wrong(f"--config {path}: {key} must be {each_of}{words}")
    if isinstance(parameter.type, Devices) and isinstance(value, list):
        value = ",".join(map(str, value))
    try:
        parameter.type_cast_value(context, value)
    except click.BadParameter as error:
        raise _wrong(f"--config {path}: {key}: {error.message}") from None
    return value


def _kinds_of(parameter: click.Parameter) -> tuple[tuple[type, ...], str]:
    for kind, kinds, words in _KINDS:
        if isinstance(parameter.type, kind):
            return kinds, words
    return (str,), "a string"


def _note_readable(path: Path) -> None:
    """Note that other users can read the keys in a file."""
    if os.name == "posix" and path.stat().st_mode & 0o044:
        note(f"other users can read the keys in {path}; type `chmod 600 {path}`")


def _wrong(message: str) -> InvalidRequestError:
    return InvalidRequestError(message, code="bad_options", param="config")
