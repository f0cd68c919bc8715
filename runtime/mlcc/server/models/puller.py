"""Fetches models for a running server: `mlcc pull` in a process of its own, whose progress is read,
and the source of the compiled model."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from mlcc.errors import CheckpointError
from mlcc.server.models.sources import Source
from mlcc.service.served_model import PullStep

PULL = (sys.executable, "-m", "mlcc", "pull")
_MOST_LINE = 1 << 20
_UNWIND_S = 30.0
"""Time for `mlcc pull` to clean up after SIGTERM."""


@dataclass(frozen=True)
class Pulled:
    """A model that was fetched, and the budget of its device (`memory_budget.budgets`)."""

    source: Source
    budgets: Mapping[str, int | None]


class Puller:
    """`open_source` returns what was fetched, by its name; it blocks. `options` are those of `mlcc
    pull`."""

    def __init__(
        self,
        open_source: Callable[[str], Pulled],
        options: Sequence[str] = (),
        command: Sequence[str] = PULL,
    ) -> None:
        self.open_source = open_source
        self._command = (*command, *options, "--progress", "json")

    async def fetch(self, name: str) -> AsyncGenerator[PullStep, None]:
        """Yield what is done until the model is ready. Ending the iteration ends the download,
        which a later one resumes. Raises CheckpointError with the reason of `mlcc pull`."""
        process = await asyncio.create_subprocess_exec(
            *self._command,
            "--",
            name,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,  # Ctrl-C of the server ends it through `_end`
            limit=_MOST_LINE,
        )
        assert process.stderr is not None
        reason = ""
        try:
            async for line in process.stderr:
                event = _event(line)
                if event.get("event") == "step":
                    yield _step(event)
                reason = _reason(line, event) or reason
            if await process.wait():
                raise CheckpointError(reason or f"`mlcc pull {name}` failed; see the server's log")
        finally:
            await _end(process)


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is not None:
        return
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            process.send_signal(number)
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(process.wait(), _UNWIND_S)
            return


def _event(line: bytes) -> dict[str, Any]:
    """The event of a line of `--progress json`; {} for other lines."""
    try:
        found = json.loads(line)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _step(event: Mapping[str, Any]) -> PullStep:
    counted = event.get("unit") == "bytes"
    done, total = (event.get("done"), event.get("total")) if counted else (None, None)
    return PullStep(str(event.get("step", "")), done, total)


def _reason(line: bytes, event: Mapping[str, Any]) -> str:
    """The error that a line reports; "" = none."""
    if event.get("event") == "error":
        return str(event.get("message", ""))
    text = line.decode("utf-8", "replace").strip()
    return text.removeprefix("error: ") if text.startswith("error: ") else ""
