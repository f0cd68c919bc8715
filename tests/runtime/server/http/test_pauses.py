"""A server shortens the pauses of its event loop once all is loaded."""

from __future__ import annotations

from pathlib import Path

import httpx

from mlcc.server.http.pauses import SWITCH_S
from tests.runtime.server.helpers.server_process import running

PROGRAM = """
import atexit, gc, sys
from pathlib import Path
from tests.runtime.server.helpers.toy_server import main

NOTES = Path(__file__).with_suffix(".txt")

def note():
    figures = gc.get_freeze_count(), len(gc.get_objects()), sys.getswitchinterval()
    NOTES.write_text(" ".join(map(str, figures)))

if __name__ == "__main__":
    atexit.register(note)
    main()
"""


def test_the_collector_visits_few_objects_and_threads_take_short_turns(tmp_path: Path) -> None:
    program = tmp_path / "noting_server.py"
    program.write_text(PROGRAM)
    with running(program=program) as server:
        assert httpx.get(f"{server.url}/ready").status_code == 200
    frozen, visited, switch_s = program.with_suffix(".txt").read_text().split()
    assert int(frozen) > 10 * int(visited) > 0, "what was loaded is still visited"
    assert float(switch_s) == SWITCH_S
