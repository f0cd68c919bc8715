"""Console output of `mlcc compile`: decisions, current phase, progress."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mlcc.errors import printable
from mlcc.util.sizes import size

if TYPE_CHECKING:
    from mlcc_compiler.compile import Progress

_WORDS = {"traced": "reading the model", "code": "writing code", "libraries": "finishing the code"}
_PASSES = "choosing kernels"
"""Display name of each phase."""


class Display:
    """Writes to stderr: on a terminal one line that is updated; elsewhere a line for each finished
    phase and each quarter of the weights. Silent with `quiet`; lists the passes with `verbose`."""

    def __init__(self, quiet: bool, verbose: bool = False) -> None:
        self.quiet, self.verbose = quiet, verbose
        self.is_terminal = sys.stderr.isatty() and not quiet
        self.start = time.perf_counter()
        self._shown, self._doing = -1, ""
        self._calibrated = "", -1
        self._weights_since: float | None = None

    def progress(self) -> Progress:
        """The callbacks that the compiler takes."""
        from mlcc_compiler.compile import Progress

        return Progress(
            decided=self.decided,
            phase=self.phase,
            weights=self.weights,
            sensitivity=self.sensitivity,
            calibration=self.calibration,
        )

    def decided(self, what: str, value: str) -> None:
        """Report a decision, defaults included."""
        if not self.quiet:
            click.echo(f"{what + ':':<14}{printable(value)}", err=True)

    def phase(self, name: str) -> None:
        """A phase begins; several phases share one display name."""
        doing = _WORDS.get(name, _PASSES)
        if self.verbose:
            doing = f"lowering: {name.replace('_', ' ')}"
        if doing != self._doing:
            self._doing = doing
            self._line(f"{self._elapsed()} {doing}")

    def weights(self, done: int, total: int) -> None:
        """Report weights packed so far."""
        now = time.perf_counter()
        if self._weights_since is None:
            self._weights_since = now
        percent = 100 * done // total if total else 100
        percent = percent if self.is_terminal else percent // 25 * 25
        if percent != self._shown:
            self._shown = percent
            seconds = now - self._weights_since
            speed = f" ({size(int(done / seconds))}/s)" if done and seconds > 0 else ""
            self._line(f"{self._elapsed()} packing weights {percent:3d} %{speed}")

    def sensitivity(self, done: int, total: int) -> None:
        """Report steps of the sensitivity measurement."""
        self._steps("measuring what rounding costs", done, total)

    def calibration(self, done: int, total: int) -> None:
        """Report steps of the calibration."""
        self._steps("calibrating", done, total)

    def _steps(self, what: str, done: int, total: int) -> None:
        percent = 100 * done // total if self.is_terminal else 100 * done // total // 25 * 25
        if (what, percent) != self._calibrated:
            self._calibrated = what, percent
            self._line(f"{self._elapsed()} {what} {percent:3d} %")

    def finish(self, out: Path, hint: str) -> None:
        """Report the finished artifact."""
        if self.quiet:
            return
        bytes_ = sum(path.stat().st_size for path in out.rglob("*") if path.is_file())
        if self.is_terminal:
            click.echo("\r\x1b[K", err=True, nl=False)
        seconds = time.perf_counter() - self.start
        click.echo(f"compiled in {seconds:.1f} s: {out} ({bytes_ / 1e6:.1f} MB)", err=True)
        if hint:
            click.echo(f"{hint} {out}", err=True)

    def _line(self, text: str) -> None:
        if self.is_terminal:
            click.echo(f"\r\x1b[K{text}", err=True, nl=False)
        elif not self.quiet:
            click.echo(text, err=True)

    def _elapsed(self) -> str:
        return f"{time.perf_counter() - self.start:5.1f} s"
