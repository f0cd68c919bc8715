"""`mlcc package DIR OUT`: a compiled model in a form that an app's build includes."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

import click

from mlcc.artifact.asset_pack import write_asset_pack
from mlcc.artifact.folder import Artifact
from mlcc.errors import InvalidRequestError
from mlcc.util.sizes import size

SHOWN_AFTER_S = 2.0


@click.command("package")
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.argument("out", type=click.Path(path_type=Path))
@click.option("--android", is_flag=True, help="Pack an asset pack, a module of an Android app.")
def package_command(folder: Path, out: Path, android: bool) -> None:
    """Pack a compiled model for an app."""
    if not android:
        raise InvalidRequestError("say what for: mlcc package --android DIR OUT")
    artifact = Artifact.open(folder, verify=False, host=False)
    model = write_asset_pack(artifact, out, _bar())
    total = sum(entry.bytes for entry in artifact.manifest.files)
    click.echo(f"{out}: {size(total)}; the app finds it under {model.parts[-2]}/{model.name}")


def _bar() -> Callable[[int, int], None]:
    """A progress bar on a terminal's stderr."""
    start = time.monotonic()

    def show(done: int, total: int) -> None:
        if not sys.stderr.isatty() or time.monotonic() - start < SHOWN_AFTER_S:
            return
        bar = "#" * (25 * done // total)
        text = f"\r\x1b[K[{bar:<25}] {100 * done // total:3d} % of {size(total)}"
        click.echo("\r\x1b[K" if done == total else text, nl=False, err=True)

    return show
