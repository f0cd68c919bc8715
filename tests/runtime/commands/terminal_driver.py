"""A program on a pseudo-terminal: type, wait for words, press Ctrl-C."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import subprocess
import termios
import time
from pathlib import Path

CTRL_C = "\x03"
CTRL_D = "\x04"
PROMPT = ">>> "
_PASTE_MODE = re.compile(r"\x1b\[\?2004[hl]\r?")


class Terminal:
    """All output of the program is kept in `seen`; `expect` searches the new part. Escapes that
    switch bracketed paste are in `raw` only."""

    def __init__(self, command: list[str], **environment: str) -> None:
        self._master, slave = pty.openpty()
        self.process = subprocess.Popen(
            command,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
            env={**os.environ, "TERM": "xterm", **environment},
        )
        os.close(slave)
        self._stat = Path(f"/proc/{self.process.pid}/stat")
        self.raw = self.seen = ""
        self._read_to = 0

    def send(self, text: str) -> None:
        os.write(self._master, text.encode())

    def paste(self, text: str) -> None:
        """Paste text as a terminal does, once the program has switched bracketed paste on."""
        end = time.monotonic() + 60
        while not self.raw.rpartition("\x1b[?2004")[2].startswith("h"):
            assert time.monotonic() < end, "no bracketed paste"
            self._pump(0.1)
        self.send(f"\x1b[200~{text}\x1b[201~")

    def expect(self, pattern: str, seconds: float = 60) -> str:
        """Wait until new output matches; returns it up to the match's end."""
        end = time.monotonic() + seconds
        while True:
            found = re.search(pattern, self.seen[self._read_to :])
            if found:
                start, self._read_to = self._read_to, self._read_to + found.end()
                if pattern == PROMPT:
                    self.settle()  # it is written before keys are listened for
                return self.seen[start : self._read_to]
            assert time.monotonic() < end, f"no {pattern!r} in {self.seen[self._read_to :]!r}"
            self._pump(0.1)

    def leave(self) -> int:
        """Press Ctrl-D at the next prompt, before which no program listens for it; exit code."""
        self.expect(PROMPT)
        self.send(CTRL_D)
        return self.wait()

    def settle(self, seconds: float = 60) -> None:
        """Let the program come to where it waits: for a key, or for a step to end. Before that a
        Ctrl-C finds another handler, or is seen only with the next key. How busy the machine is
        does not matter; but for systems that do not tell, where it is a pause."""
        end, asleep = time.monotonic() + seconds, 0
        while asleep < 3:
            assert time.monotonic() < end, f"never idle after {self.seen!r}"
            self._pump(0.02)
            asleep = asleep + 1 if self._is_asleep() else 0

    def _is_asleep(self) -> bool:
        if not self._stat.exists():
            time.sleep(0.3)
            return True
        return self._stat.read_text().rpartition(")")[2].split()[0] == "S"

    def wait(self, seconds: float = 60) -> int:
        """Exit code, once the program has ended."""
        end = time.monotonic() + seconds
        while self.process.poll() is None:
            assert time.monotonic() < end, f"still running after {self.seen!r}"
            self._pump(0.05)
        self._pump(0.05)
        return self.process.returncode

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._master)

    def _pump(self, seconds: float) -> None:
        ready, _, _ = select.select([self._master], [], [], seconds)
        try:
            self.raw += os.read(self._master, 65536).decode(errors="replace") if ready else ""
            self.seen = _PASTE_MODE.sub("", self.raw)
        except OSError:
            time.sleep(0.01)  # the other end is closed
