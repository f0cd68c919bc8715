"""Programmatic dependent launch: a kernel's workgroups start while the kernel before still runs.

On H100 and H200 the next kernel of a stream may be placed as soon as all workgroups of the one
before have begun, if both agree. So each kernel first waits for all kernels before it, with what
they wrote (`griddepcontrol.wait`), and then lets the next one be placed. What is saved is the time
between two kernels, eight of them a layer; what a kernel reads is read after its wait.

A pass over the kernels that TVM has split from host code, for libraries of such GPUs alone.
"""

from __future__ import annotations

from typing import Any

from mlcc_compiler.ir._tvm import T, tirx

ARCHS = ("sm_90a",)
"""Architectures whose libraries do so; others that could have none of their own."""
_TAGS = "tirx.kernel_launch_params"
_DEPENDENT = "tirx.use_programtic_dependent_launch"
"""As TVM's runtime spells it."""
_BEGIN = """
__device__ __forceinline__ void mlcc_begin() {
  asm volatile("griddepcontrol.wait; griddepcontrol.launch_dependents;" ::: "memory");
}
"""


def dependent_launches() -> Any:
    """The pass."""

    @tirx.transform.prim_func_pass(opt_level=0)
    def start_early(function: Any, module: Any, context: Any) -> Any:
        tags, target = (function.attrs.get(name) for name in (_TAGS, "target"))
        if tags is None or target.attrs.get("arch") not in ARCHS:
            return function
        begin = tirx.Evaluate(T.cuda.func_call("mlcc_begin", source_code=_BEGIN))
        waiting = function.with_body(tirx.SeqStmt([begin, function.body]))
        return waiting.with_attr(_TAGS, [_DEPENDENT, *tags])

    return start_early
