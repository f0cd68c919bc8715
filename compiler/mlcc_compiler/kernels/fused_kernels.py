"""Fuses two kernels into one: the second reads the first's last output.

The bodies run one after the other: results are bit-identical, the intermediate array is still
written for its other readers, and only the second call disappears. `passes/join_kernels.py` chooses
the pairs.
"""

from __future__ import annotations

from typing import Any

from mlcc_compiler.ir._tvm import tirx
from mlcc_compiler.kernels.called_functions import called_by, calling

READS_LAST = "mlcc.reads_last"
"""Attribute of a kernel with one input that may be fused into the kernel that produces it."""


def fuse_kernels(first: Any, second: Any) -> Any:
    """The PrimFunc of both: the arguments of `first`, then the outputs of `second`, which reads the
    last array of `first` as rows, whatever its shape."""
    made, read = first.params[-1], second.params[0]
    body = tirx.SeqStmt([first.body, second.body])
    attrs = calling(first, called_by(second)).attrs
    apart = tirx.PrimFunc([*first.params, *second.params], body, attrs=attrs)
    if len(made.ty.shape) == len(read.ty.shape):
        return apart.specialize({read: made})  # its sizes are those of `made` then
    rows, width = made.ty.shape[0], read.ty.shape[1]
    alike = apart.specialize({read: tirx.decl_buffer((rows, width), str(read.ty.dtype))})
    place = len(first.params)
    params = list(alike.params)
    view = params.pop(place)
    body = tirx.SeqStmt([tirx.DeclBuffer(view, data=params[place - 1].data), alike.body])
    return tirx.PrimFunc(params, body, attrs=attrs)
