"""A rank behind 0: a process that opens its part of a model and computes what rank 0 is asked.

Started by `device/parallel/rank_processes.py`, which writes what to open into its input, as one
pickle, and lets it go by closing that. Of why it failed it says one line of JSON.
"""

from __future__ import annotations

import json
import os
import pickle
import signal
import sys
from typing import Any

from mlcc.errors import MlccError
from mlcc.util.machine import allow_tiles


def main() -> int:
    """Runs until rank 0 ends; its exit code."""
    for number in (signal.SIGINT, signal.SIGTERM):  # rank 0 decides, which may have to drain first
        signal.signal(number, signal.SIG_IGN)
    voice = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is not said to rank 0

    def say(line: str) -> None:
        print(line, file=voice, flush=True)

    try:
        given = pickle.load(sys.stdin.buffer)
        if "handle" in given:
            from mlcc.device.parallel.experimental.gpu_executor import follow

            follow(given, sys.stdin.buffer, say)
        else:
            _follow(given)
    except MlccError as error:
        say(json.dumps([type(error).__name__, error.message]))
        return error.exit_code
    return 0


def _follow(given: dict[str, Any]) -> None:
    """On a CPU: rank 0 is in the memory that they share."""
    from mlcc.device.compiled.executor import CompiledExecutor

    allow_tiles()  # rank 0 asked for itself, if the library has them
    executor = CompiledExecutor(**given)
    executor.follow()
    executor.close()


if __name__ == "__main__":
    sys.exit(main())
