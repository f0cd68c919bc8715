"""Errors of writing an output folder: too little disk space, and OSErrors in one line.

`where` is the option that named the folder, for error messages: "--output".
"""

from __future__ import annotations

import errno
import shutil
from pathlib import Path

from mlcc.errors import CapacityError, MlccError
from mlcc.util.sizes import apart


def check_space(out: Path, needed: int, where: str) -> None:
    """Raises CapacityError if `needed` bytes do not fit beside `out`."""
    free = shutil.disk_usage(out.parent).free
    if needed > free:
        needs, has = apart(needed, free)
        raise CapacityError(
            f"{out}: needs {needs} and the disk has {has} free; "
            f"free some space or choose another {where}"
        )


def write_error(error: OSError, out: Path, where: str) -> MlccError:
    """The error for an OSError while writing `out`, in one line."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return CapacityError(f"{out}: the disk is full; free some space or choose another {where}")
    if error.errno == errno.EFBIG:
        return CapacityError(
            f"{out}: its disk, or the limit of `ulimit -f`, allows no file so large; raise the "
            f"limit or choose another {where}"
        )
    reason, name = error.strerror or str(error), str(error.filename or "")
    if name and not name.startswith(str(out.parent)):
        return MlccError(f"{name}: {reason}; check that it is there and may be read")
    return MlccError(f"{out}: cannot be written ({reason}); choose another {where}")
