"""Requests leave nothing behind that only a garbage collection finds: full ones, of which the
server's loop stands still, have nothing to do, and memory stays flat without them."""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from pathlib import Path

import pytest

from benchmarks.server import soak
from benchmarks.server.soak_requests import Call, encoded, fixed_calls, hostile_calls
from tests.runtime.server.helpers.server_process import RunningServer, eventually, running

PROGRAM = """
import gc, os, signal, sys
from collections import Counter
from pathlib import Path
from tests.runtime.server.helpers.toy_server import main

NOTES = Path(__file__).with_suffix(".txt")

def note(*_):
    gc.collect()
    kinds = Counter(type(found).__qualname__ for found in gc.garbage)
    gc.garbage.clear()
    gc.set_debug(gc.DEBUG_SAVEALL)
    NOTES.with_suffix(".new").write_text("\\n".join(f"{n} {kind}" for kind, n in kinds.items()))
    os.replace(NOTES.with_suffix(".new"), NOTES)

if __name__ == "__main__":
    signal.signal(signal.SIGUSR1, note)
    main()
"""
EACH = 6
"""Requests of each kind. Other parts of the process may leave a few objects in the meantime."""


def garbage(server: RunningServer, notes: Path) -> Counter[str]:
    """The kinds of objects that were found since the last time."""
    notes.unlink(missing_ok=True)
    os.kill(server.process.pid, signal.SIGUSR1)
    assert eventually(notes.exists)
    rows = (line.split() for line in notes.read_text().splitlines())
    return Counter({kind: int(number) for number, kind in rows})


def calls() -> list[Call]:
    """One of each kind: all protocols, in one piece and as streams, refused, and left amid."""
    stream = {"prompt": "a", "max_tokens": 60, "stream": True, "ignore_eos": True}
    left = Call("left", "/v1/completions", encoded(stream), ("[DONE]",), leaves_after=2)
    small = [call for call in hostile_calls() if len(call.body) < 1000]
    return [*fixed_calls("toy"), *small, left]


@pytest.mark.skipif(not hasattr(signal, "SIGUSR1"), reason="Windows has no SIGUSR1")
@pytest.mark.parametrize("with_tls", [False, True])
def test_requests_leave_no_cycles(with_tls: bool, tmp_path: Path) -> None:
    program, options, context = tmp_path / "noting_server.py", list[str](), None
    program.write_text(PROGRAM)
    if with_tls:
        path, context = soak.certificate(tmp_path)
        options = ["--cert", str(path), str(path)]

    async def send(times: int) -> None:
        client = soak.Client(server.url, context)
        for call in calls() * times:
            found, answer = await client.send(call)
            assert found in ("answered", "refused", "left"), (call, answer)
        await asyncio.sleep(0.5)  # the last connections end

    with running(*options, program=program) as server:
        asyncio.run(send(1))
        garbage(server, program.with_suffix(".txt"))
        asyncio.run(send(EACH))
        found = garbage(server, program.with_suffix(".txt"))
    assert found.total() < EACH, found
