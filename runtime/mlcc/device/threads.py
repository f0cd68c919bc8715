"""The number of kernel threads. TVM's thread pool, where it is used, reads it once at start."""

from __future__ import annotations

import os

from mlcc.errors import InvalidRequestError
from mlcc.util.cores import usable_cores, usable_threads

_TVM, _OMP = "TVM_NUM_THREADS", "OMP_NUM_THREADS"
_written: str | None = None
"""The value this module wrote to the environment, which does not count as the user's choice."""


def set_threads(threads: int | None) -> int:
    """Set the number of kernel threads; call it before a library runs and before tvm is imported.

    Default: TVM_NUM_THREADS or OMP_NUM_THREADS, else the physical cores this process may use
    (TVM's own default can be 1). Values of the environment are capped at the usable cores.
    Returns the number. Raises InvalidRequestError for more threads than the process may use, since
    waiting threads spin and starve each other, and for variables that are not numbers.
    """
    global _written
    most = usable_threads()
    count = threads or min(most, _from_environment() or usable_cores())
    if count > most:
        raise InvalidRequestError(
            f"--threads {count} is more than the {most} cores this process may use; "
            f"use --threads {most} or less"
        )
    _written = os.environ[_TVM] = str(count)
    return count


def _from_environment() -> int | None:
    """The number set in the environment; the first of an OpenMP list (4,2 for nested regions)."""
    values = {name: os.environ.get(name, "").strip() for name in (_TVM, _OMP)}
    if values[_TVM] == _written:
        values[_TVM] = ""
    for name, text in values.items():
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
