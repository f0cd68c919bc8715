"""Terminal input and output of `chat` and `run`: streamed answers without control characters,
notes, line editing, Ctrl-C, and the progress of loading.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any

from mlcc.api.parsers.deltas import CallDelta, Delta, ReasoningDelta
from mlcc.errors import InvalidRequestError, printable
from mlcc.util.progress import Progress

if TYPE_CHECKING:
    from mlcc.model.session import Timing


LOADING_S = 1.5
"""Loading that takes less shows no line."""


@contextmanager
def loading(name: str) -> Iterator[Callable[[int, int], None]]:
    """Shows a line while a model is loaded, if that takes long. Yields what takes the bytes that
    are loaded, and all."""
    what = f"loading {printable(name)}"
    with Progress(patience=LOADING_S) as progress:
        progress.step(what)
        yield lambda done, total: progress.step(what, done, total, "bytes")


MOST_HISTORY = 1000
"""Input lines kept from one run to the next."""
_CONTROL = {code: "\ufffd" for code in [*range(32), *range(127, 160)] if chr(code) not in "\n\t"}
"""Control characters in a model's text are replaced: no escape sequences, no carriage returns."""


class Screen:
    """Writes answers to standard output and notes to standard error."""

    def __init__(self) -> None:
        self.to_terminal = sys.stdout.isatty()
        self.interactive = sys.stdin.isatty()
        plain = "NO_COLOR" in os.environ or os.environ.get("TERM") == "dumb"
        self._colour = self.to_terminal and not plain

    def answer(self, deltas: Iterable[str]) -> str:
        """Write pieces of text as they come, then a line end; returns the whole text."""
        kept = []
        for delta in deltas:
            kept.append(delta)
            sys.stdout.write(delta.translate(_CONTROL) if self.to_terminal else delta)
            sys.stdout.flush()
        text = "".join(kept)
        if not text.endswith("\n"):
            sys.stdout.write("\n")
        sys.stdout.flush()
        return text

    def answer_parsed(self, deltas: Iterable[Delta]) -> str:
        """Write an answer with reasoning, which is dimmed, or goes to the standard error if the
        standard output is redirected; returns the answer without reasoning."""
        kept, thinking = [], False
        for delta in deltas:
            is_thought = isinstance(delta, ReasoningDelta)
            if thinking and not is_thought:
                self._thought("\n\n")
            thinking = is_thought
            text = "" if isinstance(delta, CallDelta) else delta.text
            if is_thought:
                self._thought(text)
                continue
            kept.append(text)
            sys.stdout.write(text.translate(_CONTROL) if self.to_terminal else text)
            sys.stdout.flush()
        if thinking:
            self._thought("\n")
        text = "".join(kept)
        if not text.endswith("\n"):
            sys.stdout.write("\n")
        sys.stdout.flush()
        return text

    def _thought(self, text: str) -> None:
        stream = sys.stdout if self.to_terminal else sys.stderr
        plain = text.translate(_CONTROL) if stream.isatty() else text
        stream.write(f"\x1b[2m{plain}\x1b[0m" if self._colour else plain)
        stream.flush()

    def note(self, text: str) -> None:
        """Print a note, dimmed to distinguish it from the model's text."""
        stream = sys.stdout if self.to_terminal else sys.stderr
        line = f"\x1b[2m{text}\x1b[0m" if self._colour else text
        print(line, file=stream, flush=True)

    def read(self, prompt: str = ">>> ") -> str | None:
        """Read a line from the user; None at the end of input (Ctrl-D)."""
        if not self.to_terminal:
            sys.stderr.write(prompt)
            sys.stderr.flush()
            prompt = ""
        try:
            return input(prompt)
        except EOFError:
            return None
        except UnicodeDecodeError:
            raise _not_utf8() from None


def thinks(wanted: bool | None) -> dict[str, bool]:
    """Template variables for --think, as in a request."""
    return {} if wanted is None else {"enable_thinking": wanted, "thinking": wanted}


def cut_off(timing: Timing | None, limit: int | None) -> str | None:
    """A note about where an answer was cut off; None if it was complete. `limit` in tokens."""
    if timing is None or timing.reason != "length":
        return None
    reached = limit is not None and timing.completion_tokens >= limit
    return "cut off at " + (f"--max-tokens {limit}" if reached else "the end of the context")


def read_stdin() -> str:
    """All of the standard input. Raises InvalidRequestError if it is not text."""
    try:
        return sys.stdin.read()
    except UnicodeDecodeError:
        raise _not_utf8() from None


def _not_utf8() -> InvalidRequestError:
    return InvalidRequestError(
        "the standard input is not valid UTF-8; convert it, for example with `iconv -t UTF-8`"
    )


def enable_line_editing(history: Path) -> None:
    """Enable arrow keys for `input`, where Python has readline, with the history of this and
    earlier runs; bracketed paste is on. An unusable history file is ignored."""
    with suppress(ImportError):
        import readline

        # Python switches it off for its own prompt, where each line is a statement.
        readline.parse_and_bind("set enable-bracketed-paste on")
        readline.set_history_length(MOST_HISTORY)
        with suppress(OSError):
            history.parent.mkdir(parents=True, exist_ok=True)
            history.touch(mode=0o600)
            readline.read_history_file(history)
            atexit.register(_keep, readline.write_history_file, history)


def _keep(write: Callable[[Path], None], history: Path) -> None:
    with suppress(OSError):
        write(history)


class Interrupts:
    """A context in which the first Ctrl-C only sets a flag; a second one interrupts as usual."""

    def __init__(self) -> None:
        self.pressed = False
        self._before: Any = None

    def __enter__(self) -> Interrupts:
        self._before = signal.signal(signal.SIGINT, self._press)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        signal.signal(signal.SIGINT, self._before)

    def __call__(self) -> bool:
        return self.pressed

    def _press(self, number: int, frame: FrameType | None) -> None:
        if self.pressed:
            raise KeyboardInterrupt
        self.pressed = True
