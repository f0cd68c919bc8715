"""How many threads compute a step. TVM's pool, where a library runs over that, reads it once."""

from __future__ import annotations

import os

from mlcc.errors import InvalidRequestError
from mlcc.util.cores import usable_cores, usable_threads

_TVM, _OMP = "TVM_NUM_THREADS", "OMP_NUM_THREADS"
_written: str | None = None
"""What this module wrote into the environment, which is no wish of a user's."""


def set_threads(threads: int | None) -> int:
    """Fix the number of kernel threads; must be called before a library runs, and before
    anything imports tvm.

    Default: TVM_NUM_THREADS or OMP_NUM_THREADS, else the physical cores this process may use
    (TVM's own default can be 1). What the environment says is cut to what there is.
    Returns the number.
    Raises InvalidRequestError for more than the process may use: waiting threads spin, and starve
    each other; and for variables that are no numbers.
    """
    global _written
    most = usable_threads()
    count = threads or min(most, _wished() or usable_cores())
    if count > most:
        raise InvalidRequestError(
            f"--threads {count} is more than the {most} cores this process may use; "
            f"use --threads {most} or less"
        )
    _written = os.environ[_TVM] = str(count)
    return count


def _wished() -> int | None:
    """What the environment asks for; of OpenMP's lists (4,2 for nested regions) the first."""
    told = {name: os.environ.get(name, "").strip() for name in (_TVM, _OMP)}
    if told[_TVM] == _written:
        told[_TVM] = ""
    for name, text in told.items():
        if not text:
            continue
        first = text.split(",")[0].strip()
        if not first.isdecimal() or int(first) < 1:
            raise InvalidRequestError(
                f"{name} is '{text}', which is no number of threads; set it to 1 or more, or "
                "unset it"
            )
        return int(first)
    return None
