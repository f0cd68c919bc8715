"""Whether this machine can compile for a target: the extra is installed and the linker is here.

Imports nothing of the extra `compile`, so that `mlcc targets` answers in a bare install.
"""

from __future__ import annotations

from mlcc.util.extras import lacking
from mlcc_compiler.cuda import code as cuda_code
from mlcc_targets import Target, TargetError
from mlcc_targets.linking.linker import zig


def missing(target: Target) -> str:
    """What the machine lacks for a target and the command that installs it; empty = nothing."""
    if target.missing:
        return target.missing
    if extra := lacking("compile"):
        return f'compiling needs more than is installed; type `pip install "mlcc[{extra}]"`'
    try:
        if target.kernels:  # else there is nothing to link
            zig()
    except TargetError as error:
        return str(error)
    if target.generator == "cuda":
        return cuda_code.missing(target.archs)
    return ""
