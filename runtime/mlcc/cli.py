"""The command `mlcc`: finds its subcommands and turns their errors into one line and an exit code.

Subcommands are imported only when they run, so that the others are fast and a broken one does not
break them. Other packages bring more by entry points of the group `mlcc.commands`.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from mlcc.errors import MlccError, printable
from mlcc.util.extras import advice, lacking
from mlcc.version import __version__

INTERRUPTED = 130
ERROR_FILE = "MLCC_ERROR_FILE"
"""A variable that names the file for the message of a deliberate error, instead of the standard
error: a process that runs a command as a part of its own has one error to report, not two."""
_COMMANDS = {
    "batch": "mlcc.commands.batch:batch_command",
    "bench": "mlcc.commands.bench:bench_command",
    "cache": "mlcc.commands.cache:cache_command",
    "chat": "mlcc.commands.chat:chat_command",
    "completion": "mlcc.commands.completion:completion_command",
    "doctor": "mlcc.commands.doctor:doctor_command",
    "embed": "mlcc.commands.embed:embed_command",
    "eval": "mlcc.commands.evaluate:eval_command",
    "help": "mlcc.commands.help:help_command",
    "inspect": "mlcc.commands.inspect:inspect_command",
    "launch": "mlcc.commands.launch:launch_command",
    "list": "mlcc.commands.store:list_command",
    "names": "mlcc.commands.names:names_command",
    "package": "mlcc.commands.package:package_command",
    "profile": "mlcc.commands.profile:profile_command",
    "ps": "mlcc.commands.servers:ps_command",
    "pull": "mlcc.commands.store:pull_command",
    "rm": "mlcc.commands.store:rm_command",
    "run": "mlcc.commands.run:run_command",
    "serve": "mlcc.commands.serve.command:serve_command",
    "show": "mlcc.commands.show:show_command",
    "stop": "mlcc.commands.servers:stop_command",
    "transcribe": "mlcc.commands.transcribe:transcribe_command",
    "version": "mlcc.commands.help:version_command",
}
"""Our own: reading the entry points of all that is installed takes longer than to answer."""

_SECTIONS = {
    "Chat and serve": (
        "run",
        "chat",
        "serve",
        "ps",
        "stop",
        "launch",
        "embed",
        "transcribe",
        "batch",
    ),
    "Models": ("pull", "list", "show", "rm", "names", "cache"),
    "Compile": ("compile", "inspect", "package", "targets"),
    "Measure": ("bench", "eval", "profile"),
    "Help": ("doctor", "help", "version", "completion"),
}
"""The commands in the order of `mlcc --help`."""

_ELSEWHERE = {
    "ls": "list",
    "download": "pull",
    "remove": "rm",
    "delete": "rm",
    "start": "serve",
    "generate": "run",
    "benchmark": "bench",
    "info": "show",
    "search": "names",
}
"""Names of commands in other tools."""


class Commands(click.Group):
    """A group whose commands are entry points."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names, without importing anything."""
        return sorted(_all_commands())

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one command. Raises MlccError if that fails."""
        place = _COMMANDS.get(cmd_name) or _all_commands().get(cmd_name)
        if place is None:
            return None
        module, _, name = place.partition(":")
        try:
            command = getattr(import_module(module), name)
        except ImportError as error:
            if _missing_extra(error):
                raise
            raise MlccError(
                f"`mlcc {cmd_name}` cannot be loaded: {error}; type `pip install "
                '"mlcc[compile,serve]"`'
            ) from error
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command of the first word. Raises UsageError, with the one that may be meant."""
        name = args[0] if args and not args[0].startswith("-") else ""
        if name and name not in _COMMANDS and name not in (known := _all_commands()):
            from difflib import get_close_matches

            near = get_close_matches(name, [*known, *_ELSEWHERE], n=1, cutoff=0.5)
            hint = f"; did you mean `mlcc {_ELSEWHERE.get(near[0], near[0])}`?" if near else ""
            raise click.UsageError(f"there is no command {name[:80]!r}{hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list in `mlcc --help`, from the sources' docstrings; of a command that lacks its
        extra, what to type for it."""
        rows = {}
        for name, place in sorted(_all_commands().items()):
            needs = f' (pip install "mlcc[{extra}]")' if (extra := lacking(name)) else ""
            rows[name] = (name, _first_line(place) + needs)
        widest = max(map(len, rows))  # the sections' texts begin in one column
        for title, names in _SECTIONS.items():
            with formatter.section(title):
                listed = [rows.pop(name) for name in names if name in rows]
                formatter.write_dl([(name.ljust(widest), text) for name, text in listed])
        if rows:
            with formatter.section("Other"):
                formatter.write_dl(list(rows.values()))


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
        import signal

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
        import traceback

        traceback.print_exception(error)
    if isinstance(error, MlccError):
        if path := os.environ.get(ERROR_FILE):
            Path(path).write_text(error.message, encoding="utf-8")
        else:
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


def _missing_extra(error: Exception) -> str:
    """What to install, if a package is missing that not every install of mlcc has."""
    if not isinstance(error, ModuleNotFoundError):
        return ""
    found = advice((error.name or "").partition(".")[0])
    return found and f"this needs {found}"


def _nobody_reads() -> int:
    """The reader of our output has closed it, as `head` does: end quietly."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def _all_commands() -> dict[str, str]:
    """Ours, and those that others bring: name -> "module:attribute"."""
    from importlib.metadata import entry_points  # late: it is slow

    others = {point.name: point.value for point in entry_points(group="mlcc.commands")}
    return {**others, **_COMMANDS}


def _first_line(place: str) -> str:
    """The first sentence of a command's docstring, read from its source and not imported."""
    import ast
    from importlib.util import find_spec

    module, _, name = place.partition(":")
    try:
        spec = find_spec(module)
        source = Path(spec.origin).read_text(encoding="utf-8") if spec and spec.origin else ""
        body: list[Any] = ast.parse(source).body
    except (ImportError, OSError, SyntaxError, ValueError):
        return ""
    found = [node for node in body if getattr(node, "name", None) == name]
    text = ast.get_docstring(found[0]) if found else None
    return (text or "").partition("\n")[0].rstrip(".")
