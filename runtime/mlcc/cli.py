"""The command `mlcc`: finds its subcommands and turns their errors into one line and an exit code.

Subcommands come from the entry points `mlcc.commands` and are imported only when they run, so that
`mlcc --help` is fast and a broken one does not break the others.
"""

from __future__ import annotations

import ast
import os
import signal
import sys
import traceback
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click

from mlcc.errors import MlccError, printable
from mlcc.version import __version__

INTERRUPTED = 130
_EXTRAS = {
    "filelock": "mlcc[compile]",
    "huggingface_hub": "mlcc[compile]",
    "safetensors": "mlcc[compile]",
    "fastapi": "mlcc[serve]",
    "starlette": "mlcc[serve]",
    "uvicorn": "mlcc[serve]",
}
"""Packages that a bare `pip install mlcc` does not bring, and what does."""


class Commands(click.Group):
    """A group whose commands are entry points."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names, without importing anything."""
        return sorted(_entry_points())

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one command. Raises MlccError if that fails."""
        point = _entry_points().get(cmd_name)
        if point is None:
            return None
        try:
            command = point.load()
        except ImportError as error:
            if _missing_extra(error):
                raise
            raise MlccError(
                f"`mlcc {cmd_name}` cannot be loaded: {error}; type `pip install 'mlcc[compile,"
                "serve]'`"
            ) from error
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list in `mlcc --help`, from the sources' docstrings."""
        rows = [(name, _first_line(point)) for name, point in sorted(_entry_points().items())]
        with formatter.section("Commands"):
            formatter.write_dl(rows or [("(none)", "mlcc is not installed: pip install -e .")])


@click.command(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="mlcc")
@click.option("--debug", is_flag=True, envvar="MLCC_DEBUG", help="Show where an error comes from.")
def cli(debug: bool) -> None:
    """One compiler, one engine, every device: compile a language model once, run it anywhere."""
    if debug:
        os.environ["MLCC_DEBUG"] = "1"  # also for the processes that a command starts


def main(args: list[str] | None = None) -> None:
    """Run and exit: 0 done, 2 a deliberate error, 1 a bug, 130 interrupted."""
    try:
        code = cli.main(args, prog_name="mlcc", standalone_mode=False)
    except click.exceptions.Abort:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # one more while Python ends would be ugly
        click.echo(err=True)
        code = INTERRUPTED
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    except BrokenPipeError:
        code = _nobody_reads()
    except Exception as error:
        code = _report(error)
    sys.exit(code if isinstance(code, int) else 0)


def _report(error: Exception) -> int:
    """One line, or everything with --debug. Returns the exit code."""
    if os.environ.get("MLCC_DEBUG"):
        traceback.print_exception(error)
    if isinstance(error, MlccError):
        click.echo(f"error: {error.message}", err=True)
        return error.exit_code
    if missing := _missing_extra(error):
        click.echo(f"error: {missing}", err=True)
        return MlccError.exit_code
    words = printable(" ".join(f"{type(error).__name__}: {error}".split()))
    click.echo(
        f"error: a bug in mlcc ({words[:300]}); run it again as `mlcc --debug ...` and report "
        "what it prints",
        err=True,
    )
    return 1


def _missing_extra(error: Exception) -> str | None:
    """What to install, if a package is missing that not every install of mlcc has."""
    package = (getattr(error, "name", None) or "").partition(".")[0]
    if not isinstance(error, ModuleNotFoundError) or package not in _EXTRAS:
        return None
    return f"this needs {package}, which is not installed; type `pip install '{_EXTRAS[package]}'`"


def _nobody_reads() -> int:
    """Whoever read our output left, as `head` does: end quietly."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def _entry_points() -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group="mlcc.commands")}


def _first_line(point: EntryPoint) -> str:
    """The first sentence of a command's docstring, read from its source and not imported."""
    try:
        spec = find_spec(point.module)
        source = Path(spec.origin).read_text(encoding="utf-8") if spec and spec.origin else ""
        body: list[Any] = ast.parse(source).body
    except (ImportError, OSError, SyntaxError, ValueError):
        return ""
    found = [node for node in body if getattr(node, "name", None) == point.attr]
    text = ast.get_docstring(found[0]) if found else None
    return (text or "").partition("\n")[0].rstrip(".")
