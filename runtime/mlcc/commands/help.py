"""`mlcc help [COMMAND]` and `mlcc version`, as other tools have them."""

from __future__ import annotations

import click

from mlcc.version import __version__


@click.command("help")
@click.argument("words", nargs=-1, metavar="[COMMAND]...")
@click.pass_context
def help_command(context: click.Context, words: tuple[str, ...]) -> None:
    """Show the options of a command, or list the commands."""
    assert context.parent is not None
    at = context.parent
    for word in words:
        group = at.command
        if not isinstance(group, click.Group):
            raise click.UsageError(f"`{at.command_path}` has no commands of its own", at)
        _, command, _ = group.resolve_command(at, [word])
        assert command is not None
        at = click.Context(command, at, info_name=word)
    click.echo(at.get_help())


@click.command("version")
def version_command() -> None:
    """Show the version."""
    click.echo(f"mlcc, version {__version__}")
