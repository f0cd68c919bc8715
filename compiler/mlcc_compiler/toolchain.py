"""Whether this machine can compile for a target: built at all, and the tools to link are here."""

from __future__ import annotations

import shutil

from mlcc_compiler import cuda_code
from mlcc_targets import Target, TargetError
from mlcc_targets.linker import c_compiler, link_shared


def missing(target: Target) -> str:
    """Why not, with what to type; empty = it can."""
    if target.missing or target.link is not link_shared:
        return target.missing
    try:
        command = c_compiler()
    except TargetError as error:
        return str(error)
    if shutil.which(command[0]) is None:
        return f"$CC names '{command[0]}', which is not there; unset CC or install it"
    if target.generator == "cuda":
        return cuda_code.missing(target.archs)
    return ""
