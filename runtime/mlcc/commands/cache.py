"""`mlcc cache list|clean`: the compiled models that chat, run and serve have kept, and what
compiling for browsers has.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import click

from mlcc.errors import printable
from mlcc_targets.wasm.build import kept as runtimes


@click.group("cache")
def cache_command() -> None:
    """List or clean the models that were compiled on the way."""


@cache_command.command("list")
def list_command() -> None:
    """Name, size and origin of every kept model."""
    from mlcc.compiled.cache import cache_folder, entries, remove

    # What a killed compile left is of no use; of one that runs somebody holds the lock.
    found = [entry for entry in entries() if entry.complete or not remove(entry)]
    for entry in found:
        how = " ".join(map(str, entry.source.get("options", [])[1::2]))
        state = how if entry.complete else "compiling"
        origin = printable(str(entry.source.get("model", "?")))
        click.echo(f"{entry.folder.name:<40} {entry.size / 1e6:9.1f} MB  {state:<14} {origin}")
    click.echo(f"{len(found)} kept in {cache_folder()}", err=True)
    for folder in runtimes():
        click.echo(f"runtime for browsers: {_size(folder) / 1e6:.1f} MB in {folder}", err=True)


@cache_command.command("clean")
@click.argument("names", nargs=-1)
def clean_command(names: tuple[str, ...]) -> None:
    """Delete the kept models called NAMES, or all of them and the runtime for browsers."""
    from mlcc.compiled.cache import entries, remove
    from mlcc.errors import InvalidRequestError

    found = {entry.folder.name: entry for entry in entries()}
    for name in names:
        if name not in found:
            raise InvalidRequestError(f"nothing is kept as '{name}'; see `mlcc cache list`")
    chosen = [found[name] for name in names] if names else list(found.values())
    deleted = freed = 0
    for entry in chosen:
        size = entry.size
        if remove(entry):
            deleted, freed = deleted + 1, freed + size
        else:
            click.echo(f"{entry.folder.name} is just being compiled: kept", err=True)
    for folder in [] if names else runtimes():
        deleted, freed = deleted + 1, freed + _size(folder)
        shutil.rmtree(folder)
    click.echo(f"{deleted} deleted, {freed / 1e6:.1f} MB freed", err=True)


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir())
