"""What a terminal shows while weights are on their way to a device."""

from __future__ import annotations

import sys
import time

import click

from mlcc.util.sizes import size


class LoadingBar:
    """One line on a terminal while weights go to a GPU, if that takes long; then it is wiped."""

    PATIENCE_S = 1.0

    def __init__(self) -> None:
        self._live = sys.stderr.isatty()
        self._began = time.monotonic()
        self._shown = False

    def update(self, done: int, total: int) -> None:
        """`done` of `total` bytes are there."""
        if self._live and time.monotonic() - self._began > self.PATIENCE_S:
            self._shown = True
            bar = "#" * (25 * done // max(1, total))
            text = f"loading: [{bar:<25}] {size(done)} of {size(total)}"
            click.echo(f"\r\x1b[K{text}", err=True, nl=False)

    def __enter__(self) -> LoadingBar:
        return self

    def __exit__(self, *_: object) -> None:
        if self._shown:
            click.echo("\r\x1b[K", err=True, nl=False)
