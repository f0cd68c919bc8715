"""Progress of long work, on the standard error: a line that moves, lines, or JSON for programs.

    with Progress() as progress:
        progress.step("packing weights", done, total, "bytes")

On a terminal the line shows what is done, of how much, since when, and its clock moves while the
work reports nothing. Elsewhere a line is printed for each step, each quarter of it, and each
HEARTBEAT_S of silence. As JSON, each event is a line of its own. The standard library only.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, TypeVar

from mlcc.errors import printable
from mlcc.util.sizes import size

MODES = ("auto", "plain", "json", "none")
"""auto: a line that moves on a terminal, else plain."""
VARIABLE = "MLCC_PROGRESS"
"""The environment's mode, for commands without --progress and for processes that they start."""
FIRST_NOTE = "MLCC_FIRST_NOTE"
"""A variable with a line that a compile prints once it begins, and not if it is refused before."""
HEARTBEAT_S = 10.0
_FEW = 9999
"""More are shown as a share."""
_REDRAW_S = 0.2
_EVENT_S = 0.5
_CLEAR = "\r\x1b[K"


@dataclass(frozen=True)
class _Step:
    """The present work."""

    name: str
    done: int | None
    total: int | None
    unit: str
    began: float

    def text(self, *, quarters: bool = False) -> str:
        """`loading  50 % of 2.87 MB (3.40 MB/s)`, `finishing the code 12 of 40 kernels`; with
        `quarters` a share is rounded down to one."""
        if self.done is None:
            return self.name
        if not self.total:
            return f"{self.name} {self._amount(self.done)}"
        if self.unit != "bytes" and self.total <= _FEW:
            return f"{self.name} {self.done} of {self._amount(self.total)}"
        seconds = time.monotonic() - self.began
        speed = ""
        if self.done and seconds > 0:
            speed = f" ({self._amount(int(self.done / seconds))}/s)"
        share = 25 * self.quarter() if quarters else 100 * self.done // self.total
        return f"{self.name} {share:3d} % of {self._amount(self.total)}{speed}"

    def quarter(self) -> int:
        return 4 * self.done // self.total if self.done is not None and self.total else -1

    def _amount(self, count: int) -> str:
        return size(count) if self.unit == "bytes" else f"{count:,} {self.unit}".rstrip()


P = TypeVar("P", bound="Progress")


class Progress:
    """Reports steps until it is closed. Thread-safe."""

    def __init__(self, mode: str | None = None, patience: float = 0.0) -> None:
        """mode: one of MODES; None = the environment's, else auto. patience: seconds of work before
        the first line, so that short work shows none."""
        mode = mode or os.environ.get(VARIABLE) or "auto"
        self.mode = mode if mode in MODES else "auto"
        self.moves = self.mode == "auto" and sys.stderr.isatty()
        self.began = time.monotonic()
        self._patience = patience
        self._step: _Step | None = None
        self._shown: _Step | None = None
        self._written_at = self.began
        self._lock = threading.RLock()
        self._closed = threading.Event()
        self._clock: threading.Thread | None = None

    def __enter__(self: P) -> P:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if isinstance(error, Exception):
            self.event("error", message=str(error))
        self.close()

    def note(self, name: str, text: str) -> None:
        """A line that stays: a decision, with its value."""
        self.event("note", name=name, text=text)
        if self.mode not in ("json", "none"):
            self.line(f"{name + ':':<14}{printable(text)}")

    def step(
        self, name: str, done: int | None = None, total: int | None = None, unit: str = ""
    ) -> None:
        """The work that is being done from now on: `done` of `total` units, where they are known.
        unit: "bytes", or the name of what is counted."""
        with self._lock:
            same = self._step is not None and self._step.name == name
            began = self._step.began if same and self._step else time.monotonic()
            self._step = _Step(name, done, total, unit, began)
            self._start_clock()
            self._show()

    def line(self, text: str) -> None:
        """Print a line above the one that moves."""
        if self.mode in ("json", "none"):
            return
        with self._lock:
            self._write((_CLEAR if self.moves else "") + text + "\n")
            if self.moves and self._shown is not None:
                self._draw()

    def event(self, kind: str, **fields: Any) -> None:
        """A line of JSON, if that is the mode."""
        if self.mode == "json":
            seconds = round(time.monotonic() - self.began, 3)
            self._write(json.dumps({"event": kind, **fields, "seconds": seconds}) + "\n")

    def close(self) -> None:
        """Remove the line that moves. Idempotent."""
        self._closed.set()
        with self._lock:
            if self.moves and self._shown is not None:
                self._write(_CLEAR)
            self._step = self._shown = None

    def _start_clock(self) -> None:
        if self._clock is None and self.mode != "none":
            self._clock = threading.Thread(target=self._tick, name="mlcc-progress", daemon=True)
            self._clock.start()

    def _tick(self) -> None:
        while not self._closed.wait(1.0 if self.moves else 0.5):
            with self._lock:
                silent = time.monotonic() - self._written_at
                if self._step and (self.moves or silent >= HEARTBEAT_S or self._shown is None):
                    self._show(beat=True)

    def _show(self, *, beat: bool = False) -> None:
        """Print the present step if it is new, has moved enough, or at a beat of the clock."""
        now, step, shown = time.monotonic(), self._step, self._shown
        if step is None or self._closed.is_set() or now - self.began < self._patience:
            return
        new = shown is None or shown.name != step.name
        ended = step.done is not None and step.done == step.total and step != shown
        if self.moves:
            if new or ended or beat or now - self._written_at >= _REDRAW_S:
                self._draw()
        elif self.mode == "json":
            if new or ended or beat or (step != shown and now - self._written_at >= _EVENT_S):
                counts = {"done": step.done, "total": step.total, "unit": step.unit}
                known = {key: value for key, value in counts.items() if value not in (None, "")}
                self.event("step", step=step.name, **known)
                self._shown = step
        elif self.mode != "none" and (
            new or beat or (shown is not None and step.quarter() != shown.quarter())
        ):
            self._write(f"{self._elapsed()} {step.text(quarters=not beat)}\n")
            self._shown = step

    def _draw(self) -> None:
        if self._step is not None:
            self._write(f"{_CLEAR}{self._elapsed()} {self._step.text()}")
            self._shown = replace(self._step)

    def _elapsed(self) -> str:
        return f"{time.monotonic() - self.began:5.1f} s"

    def _write(self, text: str) -> None:
        self._written_at = time.monotonic()
        try:
            sys.stderr.write(text)
            sys.stderr.flush()
        except OSError:
            self._closed.set()  # its reader has gone; the work goes on
