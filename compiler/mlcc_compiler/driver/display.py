"""Console output of `mlcc compile`: decisions, the present phase, progress."""

from __future__ import annotations

import time
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from mlcc.util.progress import Progress as ProgressLine

if TYPE_CHECKING:
    from mlcc_compiler.compile import Progress

_WORDS = {"traced": "reading the model", "code": "writing code", "libraries": "finishing the code"}
_PASSES = "choosing kernels"
"""Display name of each phase."""


class Display:
    """What a compile reports, for people or as JSON (`mlcc.util.progress`). Lists the passes with
    `verbose`; silent in mode "none"."""

    def __init__(self, mode: str | None = None, verbose: bool = False) -> None:
        self.verbose = verbose
        self.line = ProgressLine(mode)
        self.start = time.perf_counter()

    def __enter__(self) -> Display:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.line.__exit__(kind, error, trace)

    def progress(self) -> Progress:
        """The callbacks that the compiler takes."""
        from mlcc_compiler.compile import Progress

        return Progress(
            decided=self.line.note,
            phase=self.phase,
            weights=self.weights,
            sensitivity=self.sensitivity,
            calibration=self.calibration,
            kernels=self.kernels,
        )

    def phase(self, name: str) -> None:
        """A phase begins; several phases share one display name."""
        if self.verbose:
            self.line.line(f"lowering: {name.replace('_', ' ')}")
        self.line.step(_WORDS.get(name, _PASSES))

    def download(self, done: int, total: int) -> None:
        """Report bytes of the checkpoint downloaded so far."""
        self.line.step("downloading", done, total, "bytes")

    def weights(self, done: int, total: int) -> None:
        """Report weights packed so far."""
        self.line.step("packing weights", done, total, "weights")

    def sensitivity(self, done: int, total: int) -> None:
        """Report steps of the sensitivity measurement."""
        self.line.step("measuring what rounding costs", done, total, "steps")

    def calibration(self, done: int, total: int) -> None:
        """Report steps of the calibration."""
        self.line.step("calibrating", done, total, "steps")

    def kernels(self, done: int, total: int) -> None:
        """Report kernels compiled, once nothing else is left to do."""
        self.line.step(_WORDS["libraries"], done, total, "kernels")

    def finish(self, out: Path, hint: str) -> None:
        """Report the finished artifact."""
        bytes_ = sum(path.stat().st_size for path in out.rglob("*") if path.is_file())
        seconds = time.perf_counter() - self.start
        self.line.event("done", folder=str(out), bytes=bytes_)
        self.line.close()
        self.line.line(f"compiled in {seconds:.1f} s: {out} ({bytes_ / 1e6:.1f} MB)")
        if hint:
            self.line.line(f"{hint} {out}")
