"""A rank behind 0: a process that opens its part of a model and computes what rank 0 is asked.

Started by `device/ranks.py`, which writes what to open into its input, as one pickle, and lets it
go by closing that. It says nothing but why it failed, as one line of JSON.
"""

from __future__ import annotations

import json
import pickle
import signal
import sys

from mlcc.device.compiled import CompiledExecutor
from mlcc.errors import MlccError
from mlcc.machine import allow_tiles


def main() -> int:
    """Runs until rank 0 ends; its exit code."""
    for number in (signal.SIGINT, signal.SIGTERM):  # rank 0 decides, which may have to drain first
        signal.signal(number, signal.SIG_IGN)
    try:
        allow_tiles()  # rank 0 asked for itself, if the library has them
        executor = CompiledExecutor(**pickle.load(sys.stdin.buffer))
        executor.follow()
        executor.close()
    except MlccError as error:
        print(json.dumps([type(error).__name__, error.message]), flush=True)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
