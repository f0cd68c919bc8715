"""Two kernels as one: the second reads what the first made last.

One after the other, as they were: results are the same to the bit, the array between them is still
made, for who else reads it, and only the call of the second is gone. What they are is `passes/`'s.
"""

from __future__ import annotations

from typing import Any

from mlcc_compiler.ir._tvm import tirx

READS_LAST = "mlcc.reads_last"
"""Attribute of a kernel that has one input, and may be joined to the kernel that makes it."""


def fuse_kernels(first: Any, second: Any) -> Any:
    """The PrimFunc of both: the arguments of `first`, then the outputs of `second`, which reads the
    rows of the last array of `first` as such, whatever their shape."""
    made, read = first.params[-1], second.params[0]
    body = tirx.SeqStmt([first.body, second.body])
    apart = tirx.PrimFunc([*first.params, *second.params], body, attrs=first.attrs)
    if len(made.ty.shape) == len(read.ty.shape):
        return apart.specialize({read: made})  # its sizes are those of `made` then
    rows, width = made.ty.shape[0], read.ty.shape[1]
    alike = apart.specialize({read: tirx.decl_buffer((rows, width), str(read.ty.dtype))})
    place = len(first.params)
    params = list(alike.params)
    view = params.pop(place)
    body = tirx.SeqStmt([tirx.DeclBuffer(view, data=params[place - 1].data), alike.body])
    return tirx.PrimFunc(params, body, attrs=first.attrs)
