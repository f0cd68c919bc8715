"""`mlcc completion SHELL`: a script for Tab completion of commands, options and models."""

from __future__ import annotations

import click


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion_command(shell: str) -> None:
    """Print a script that completes commands for a shell.

    For good: `mlcc completion bash >> ~/.bashrc` (zsh: ~/.zshrc, fish:
    ~/.config/fish/completions/mlcc.fish). For now: `eval "$(mlcc completion bash)"`.
    """
    from click.shell_completion import BashComplete, get_completion_class

    from mlcc.cli import cli

    kind = get_completion_class(shell)
    assert kind is not None
    if issubclass(kind, BashComplete):
        kind._check_version = staticmethod(lambda: None)  # type: ignore[method-assign]
    click.echo(kind(cli, {}, "mlcc", "_MLCC_COMPLETE").source())
