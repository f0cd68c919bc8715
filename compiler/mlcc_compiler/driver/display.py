"""Console output of `mlcc compile`: decisions, the present phase, progress."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from mlcc.errors import printable
from mlcc.util.progress import FIRST_NOTE
from mlcc.util.progress import Progress as ProgressLine

if TYPE_CHECKING:
    from mlcc_compiler.compile import Progress

_WORDS = {"traced": "reading the model", "code": "writing code", "libraries": "finishing the code"}
_PASSES = "choosing kernels"
"""Display name of each phase."""


class Display(ProgressLine):
    """The reports of a compile, for people or as JSON. Lists the passes with `verbose`."""

    def __init__(
        self, mode: str | None = None, verbose: bool = False, patience: float = 0.0
    ) -> None:
        super().__init__(mode, patience)
        self.verbose = verbose

    def progress(self) -> Progress:
        """The callbacks that the compiler takes."""
        from mlcc_compiler.compile import Progress

        self._patience = 0.0  # was for the work before: a compile's steps are all shown
        return Progress(
            decided=self.decided,
            phase=self.phase,
            weights=self.weights,
            sensitivity=self.sensitivity,
            calibration=self.calibration,
            kernels=self.kernels,
        )

    def decided(self, name: str, text: str) -> None:
        """A decision; before the first of them the line of FIRST_NOTE."""
        if first := os.environ.pop(FIRST_NOTE, ""):
            self.event("note", name="note", text=first)
            self.line(f"note: {printable(first)}")
        self.note(name, text)

    def phase(self, name: str) -> None:
        """A phase begins; several phases share one display name."""
        if self.verbose:
            self.line(f"lowering: {name.replace('_', ' ')}")
        self.step(_WORDS.get(name, _PASSES))

    def download(self, done: int, total: int) -> None:
        """Report bytes of the checkpoint downloaded so far."""
        self.step("downloading", done, total, "bytes")

    def weights(self, done: int, total: int) -> None:
        """Report weights packed so far."""
        self.step("packing weights", done, total, "weights")

    def sensitivity(self, done: int, total: int) -> None:
        """Report steps of the sensitivity measurement."""
        self.step("measuring what rounding costs", done, total, "steps")

    def calibration(self, done: int, total: int) -> None:
        """Report steps of the calibration."""
        self.step("calibrating", done, total, "steps")

    def kernels(self, done: int, total: int) -> None:
        """Report kernels compiled, once nothing else is left to do."""
        self.step(_WORDS["libraries"], done, total, "kernels")

    def finish(self, out: Path, hint: str) -> None:
        """Report the finished artifact."""
        bytes_ = sum(path.stat().st_size for path in out.rglob("*") if path.is_file())
        seconds = time.monotonic() - self.began
        self.event("done", folder=str(out), bytes=bytes_)
        self.close()
        self.line(f"compiled in {seconds:.1f} s: {out} ({bytes_ / 1e6:.1f} MB)")
        if hint:
            self.line(f"{hint} {out}")
