"""`mlcc cache list|clean`: the models that chat, run and serve compiled, the kernels that every
compile keeps, indexes of tokenizers, and the runtime of browsers.
"""

from __future__ import annotations

import json
import shutil
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mlcc.artifact.schema import MANIFEST_NAME
from mlcc.errors import printable
from mlcc.util.file_cache import KERNELS, TOKENIZERS
from mlcc_targets.native.once import cache_folder as native_folder
from mlcc_targets.wasm.build import kept as runtimes

if TYPE_CHECKING:
    from mlcc.model_cache.cache import Entry


@click.group("cache")
def cache_command() -> None:
    """List or delete models that were compiled on demand."""


@cache_command.command("list")
def list_command() -> None:
    """Name, size and origin of every cached model."""
    from mlcc.model_cache.cache import cache_folder, entries, remove

    # The rest of a killed compile is useless; a running one holds the lock.
    found = [entry for entry in entries() if entry.complete or not remove(entry)]
    for entry in found:
        state = _how(entry) if entry.complete else "compiling"
        origin = printable(str(entry.source.get("model", "?")))
        click.echo(f"{entry.folder.name:<40} {entry.size / 1e6:9.1f} MB  {state:<14} {origin}")
    click.echo(f"{len(found)} kept in {cache_folder()}", err=True)
    for cache in (KERNELS, TOKENIZERS):
        if size := cache.size():
            click.echo(f"{cache.name}: {size / 1e6:.1f} MB in {cache.folder()}", err=True)
    for title, folder in _built():
        click.echo(f"{title}: {_size(folder) / 1e6:.1f} MB in {folder}", err=True)


@cache_command.command("clean")
@click.argument("names", nargs=-1)
def clean_command(names: tuple[str, ...]) -> None:
    """Delete cached models by name, or the whole cache.

    Without NAMES: all models, compiled kernels, indexes of tokenizers, the executors of clones, the
    runtime for browsers, and the cache of verified hashes.
    """
    from mlcc.artifact.checks import hash_cache
    from mlcc.errors import InvalidRequestError
    from mlcc.model_cache.cache import entries, remove

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
    for _, folder in [] if names else _built():
        deleted, freed = deleted + 1, freed + _size(folder)
        shutil.rmtree(folder)
    if not names:
        for cache in (KERNELS, TOKENIZERS):
            freed += cache.size()
            cache.clear()
        hash_cache.clear()
    click.echo(f"{deleted} deleted, {freed / 1e6:.1f} MB freed", err=True)


def _built() -> list[tuple[str, Path]]:
    """What and where: folders of libraries that were compiled from mlcc's own sources."""
    found = [("runtime for browsers", folder) for folder in runtimes()]
    if (folder := native_folder()).is_dir():
        found.append(("executors of clones", folder))
    return found


def _how(entry: Entry) -> str:
    """Its compile options: target, recipe (its own, if none was given), sizes."""
    words = list(map(str, entry.source.get("options", [])))
    given = dict(zip(words[::2], words[1::2], strict=False))
    target = given.pop("--target", "?")
    recipe = given.pop("--quant", None)
    if recipe is None:
        with suppress(OSError, ValueError, LookupError, TypeError):
            recipe = str(
                json.loads((entry.model / MANIFEST_NAME).read_bytes())["quantization"]["name"]
            )
    return printable(" ".join([target, recipe or "?", *given.values()]))


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir())
