"""`mlcc pull`, `list`, `rm`: the models stored ready to run."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mlcc.commands.options import note
from mlcc.engine_args import EngineArgs
from mlcc.errors import CheckpointError, InvalidRequestError, printable
from mlcc.model_argument import model_argument
from mlcc.util.progress import MODES, VARIABLE
from mlcc.util.sizes import size

if TYPE_CHECKING:
    from mlcc.model_cache.store import Stored

JSON_OPTION = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.command("pull")
@click.argument("model", callback=model_argument)
@click.option(
    "--target",
    metavar="NAME",
    help="Target to compile for, see `mlcc targets`.",
    show_default="cpu",
)
@click.option(
    "--quant",
    metavar="SCHEME",
    help="Quantization: q4, q8, f16 and variants; keep = as the checkpoint has it.",
    show_default="keep if it is quantized, q8 for Whisper, else q4",
)
@click.option(
    "--device",
    type=click.IntRange(0),
    metavar="N",
    help="GPU by number, see `mlcc targets`.",
    show_default="the best",
)
@click.option(
    "--progress",
    type=click.Choice(MODES),
    envvar=VARIABLE,
    help="How progress is shown on the standard error: plain lines, json lines, or none.",
    show_default="a line that moves on a terminal, else plain",
)
def pull_command(
    model: str, target: str | None, quant: str | None, device: int | None, progress: str | None
) -> None:
    """Download a model and make it ready to run.

    MODEL is org/name of the Hugging Face Hub (or hf://org/name@revision), a short name of `mlcc
    names` such as qwen3:0.6b, or a folder. It is downloaded, compiled for this machine and stored,
    so that `mlcc chat MODEL` starts at once. An interrupted download is resumed. `mlcc list` shows
    the stored models.
    """
    from mlcc.artifact.folder import Artifact
    from mlcc.model_cache.resolve import resolve

    if progress is not None:
        os.environ[VARIABLE] = progress  # of the compiler, which is a process of its own
    path = resolve(EngineArgs(model, target, quant, device=device))
    name = printable(model.removeprefix("hf://"))
    command = Artifact.open(path, verify=False, host=False).manifest.command
    click.echo(f"{name} is ready ({size(_bytes(path))}): mlcc {command} {name}")


@click.command("list")
@JSON_OPTION
def list_command(as_json: bool) -> None:
    """List the models that are stored ready to run."""
    from mlcc.model_cache.store import stored

    rows = [_row(model) for model in stored()]
    if as_json:
        click.echo(json.dumps(rows, indent=1))
        return
    if not rows:
        note("nothing is kept yet; `mlcc pull org/name` brings a model of the Hugging Face Hub")
        return
    width = max(len(row["name"]) for row in rows)
    click.echo(f"{'NAME':<{width}}  {'QUANT':<6} {'TARGET':<10} {'SIZE':>9}  MADE")
    for row in rows:
        made = time.strftime("%Y-%m-%d", time.localtime(row["made"]))
        words = f"{row['name']:<{width}}  {row['quant']:<6} {row['target']:<10}"
        click.echo(printable(f"{words} {size(row['bytes']):>9}  {made}"))


@click.command("rm")
@click.argument("names", nargs=-1, required=True, metavar="MODEL...")
@click.option("--all", "everything", is_flag=True, help="Delete every compiled variant of a model.")
def rm_command(names: tuple[str, ...], everything: bool) -> None:
    """Delete stored models; downloaded files stay in the hub's cache."""
    from mlcc.model_cache.cache import remove

    chosen = [each for name in names for each in (_all(name) if everything else [one_model(name)])]
    freed = 0
    for model in {each.entry.folder: each for each in chosen}.values():
        bytes_ = model.entry.size
        if remove(model.entry):
            freed += bytes_
            click.echo(f"{printable(model.name)} ({model.entry.folder.name}) is deleted")
        else:
            note(f"{model.entry.folder.name} is just being compiled: kept")
    click.echo(f"{size(freed)} freed", err=True)


def _all(name: str) -> list[Stored]:
    """The stored models of a name, which may be a short one. Raises CheckpointError."""
    from mlcc.model_cache.store import named
    from mlcc.short_names import find

    repository = None if "/" in name else find(name)
    try:
        return named(name)
    except CheckpointError:
        if repository is None:
            raise
        return named(repository)


def one_model(name: str) -> Stored:
    """The stored model of a name. Raises InvalidRequestError if several have it."""
    found = _all(name)
    if len(found) > 1:
        kinds = ", ".join(each.entry.folder.name for each in found)
        raise InvalidRequestError(f"there are several '{name}': {kinds}; type one of these names")
    return found[0]


def _row(model: Stored) -> dict[str, Any]:
    manifest = model.manifest
    return {
        "name": model.name,
        "id": model.entry.folder.name,
        "quant": manifest.quantization.name,
        "target": manifest.target.name,
        "context": manifest.limits.context,
        "bytes": model.entry.size,
        "made": int(model.made),
        "origin": model.origin,
        "folder": str(model.model),
    }


def _bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
