"""The process of a rank other than 0: opens its part of a model and runs the steps of rank 0.

Started by `rank_processes.py`, which sends the arguments by stdin as one pickle and closes stdin to
stop it. On failure it prints the error as one line of JSON.
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
    """Run until rank 0 ends; returns the exit code."""
    for number in (signal.SIGINT, signal.SIGTERM):  # rank 0 stops us, after it drained
        signal.signal(number, signal.SIG_IGN)
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # keep prints of libraries out of the replies

    def reply(line: str) -> None:
        print(line, file=replies, flush=True)

    try:
        given = pickle.load(sys.stdin.buffer)
        if "handle" in given:
            from mlcc.device.parallel.experimental.gpu_executor import run_rank

            run_rank(given, sys.stdin.buffer, reply)
        else:
            _run_cpu_rank(given)
    except MlccError as error:
        reply(json.dumps([type(error).__name__, error.message]))
        return error.exit_code
    return 0


def _run_cpu_rank(given: dict[str, Any]) -> None:
    """Run a CPU rank: steps arrive through shared memory."""
    from mlcc.device.compiled.executor import CompiledExecutor

    allow_tiles()  # AMX permission is per process
    executor = CompiledExecutor(**given)
    executor.follow()
    executor.close()


if __name__ == "__main__":
    sys.exit(main())
