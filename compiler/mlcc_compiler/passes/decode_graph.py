"""Adds `decode`: `forward` for steps of one token a sequence, replayed as one CUDA graph.

Launching hundreds of small kernels takes the host longer than they run; a captured graph is one
launch. TVM captures a function's kernels at its first call with some sizes and replays them at
later calls with the same sizes, from persistent storage. `forward` shares the storage, which is
sound because one stream runs both in order and nothing in it outlives a call. Addresses are
captured, so the caller passes the same tensors again with new contents; in the runtime,
`mlcc/device/tvm/cuda_graphs.py` does.
"""

from __future__ import annotations

from mlcc.engine.batch.tables import StepLayout
from mlcc_compiler.ir._tvm import ir, relax, tvm

NAME = "decode"


def add_decode(module: ir.IRModule, layout: StepLayout) -> ir.IRModule:
    """Add a copy of `forward`, bounded to one token a sequence, whose kernels may be captured."""
    forward = module["forward"]
    bounds = {**dict(forward.attrs["tir_var_upper_bound"]), "n": layout.max_sequences}
    pools = [f"num_pages_{g}" for g in range(len(layout.groups))]
    symbols = [*layout.sizes, "m", *pools]  # a graph is captured for each combination
    module[NAME] = (
        relax.utils.copy_with_new_vars(forward)
        .with_attr("tir_var_upper_bound", bounds)
        .with_attr("relax.rewrite_cuda_graph.capture_symbolic_vars", symbols)
        .with_attr("num_input", 0)
        .with_attr("global_symbol", NAME)
    )
    return module


def capture_decode(module: ir.IRModule) -> ir.IRModule:
    """Lift the kernels of `decode` into a captured function; other functions stay.

    Runs where memory is planned. TVM treats inputs beyond `num_input` as fixed.
    """
    for variable, function in list(module.functions.items()):
        if isinstance(function, relax.Function) and variable.name_hint != NAME:
            module[variable] = function.with_attr("num_input", len(function.params))
    with tvm.transform.PassContext(opt_level=3, config={"relax.backend.use_cuda_graph": True}):
        module = relax.transform.RewriteCUDAGraph()(module)
    captured = [v for v in module.get_global_vars() if "_cuda_graph_capture" in v.name_hint]
    if len(captured) != 1:
        raise AssertionError(f"{len(captured)} graphs are captured: 'decode' was cut in pieces")
    return module
