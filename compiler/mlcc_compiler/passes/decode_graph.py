"""Adds `decode` and `decode_sample`: `forward` for steps of one token a sequence, replayed as one
CUDA graph.

Launching hundreds of small kernels takes the host longer than they run; a captured graph is one
launch. TVM captures a function's kernels at its first call with some sizes and replays them at
later calls with the same sizes, from persistent storage. `forward` shares the storage, which is
sound because one stream runs both in order and nothing in it outlives a call. Addresses are
captured, so the caller passes the same tensors again with new contents; in the runtime,
`mlcc/device/tvm/cuda_graphs.py` does.

What a function returns is allocated anew by each call, so the kernel that writes it is outside of
the graph: of `decode` the product with the vocabulary, whose logits are adjusted, or reported,
before or after sampling. `decode_sample` returns nothing new: it samples too, into tensors that the
caller passes. Sampling reads all its parameters from the step, so nothing of a row is captured.
"""

from __future__ import annotations

from typing import Any

from mlcc.engine.batch.tables import StepLayout
from mlcc_compiler.ir._tvm import ir, relax, tvm
from mlcc_compiler.ir.graph import calls, dims, tensor
from mlcc_compiler.passes.rewrite import Rewriter

NAME, SAMPLED = "decode", "decode_sample"


def add_decode(module: ir.IRModule, layout: StepLayout) -> ir.IRModule:
    """Add copies of `forward`, bounded to one token a sequence, whose kernels may be captured."""
    forward = module["forward"]
    bounds = {**dict(forward.attrs["tir_var_upper_bound"]), "n": layout.max_sequences}
    pools = [f"num_pages_{g}" for g in range(len(layout.groups))]
    symbols = [*layout.sizes, "m", *pools]  # a graph is captured for each combination
    # the logits of `decode` are allocated by all functions alike, for as many rows as of `forward`
    few = {**bounds, "r": min(layout.max_sequences, layout.max_rows)}
    for name, most in ((NAME, bounds), (SAMPLED, few)):
        module[name] = (
            relax.utils.copy_with_new_vars(forward)
            .with_attr("tir_var_upper_bound", most)
            .with_attr("relax.rewrite_cuda_graph.capture_symbolic_vars", symbols)
            .with_attr("num_input", 0)
            .with_attr("global_symbol", name)
        )
    return AddSampling(module).run()


class AddSampling(Rewriter):
    """Appends `sample` to `decode_sample`, with parameters for its results behind the others:
    tokens i32[r] and logprobs f32[r]."""

    entry = SAMPLED

    def setup(self, function: relax.Function) -> list[relax.Var]:
        (self.sampling,) = calls(self.module["sample"])
        rows = dims(function.body.body)[0]
        self.step, *_ = function.params
        self.types = [
            tensor([rows, *made.shape.values[1:]], str(made.dtype))
            for made in self.sampling.ty_args[0].fields
        ]
        names = ("tokens", "logprobs")
        self.results = [relax.Var(n, t) for n, t in zip(names, self.types, strict=False)]
        return [*function.params, *self.results]

    def end(self, output: Any) -> Any:
        """The tokens."""
        arguments = [output, self.step, *self.results]
        places = [*range(2, len(arguments)), *([-1] * (len(self.types) - len(self.results)))]
        kernel = self.sampling.args[0]
        call = relax.op.call_tir_inplace(kernel, arguments, places, self.types)
        return self.items(self.builder.emit(call), 1)[0]


def capture_decode(module: ir.IRModule) -> ir.IRModule:
    """Lift the kernels of `decode` and `decode_sample` into captured functions; others stay.

    Runs where memory is planned. TVM treats inputs beyond `num_input` as fixed.
    """
    for variable, function in list(module.functions.items()):
        if isinstance(function, relax.Function) and variable.name_hint not in (NAME, SAMPLED):
            module[variable] = function.with_attr("num_input", len(function.params))
    module[SAMPLED] = _result_outside(module[SAMPLED])
    with tvm.transform.PassContext(opt_level=3, config={"relax.backend.use_cuda_graph": True}):
        module = relax.transform.RewriteCUDAGraph()(module)
    for name in (NAME, SAMPLED):
        begin = f"{name}_cuda_graph_capture"
        captured = [v for v in module.get_global_vars() if v.name_hint.startswith(begin)]
        if len(captured) != 1:
            raise AssertionError(f"{len(captured)} graphs are captured: '{name}' was cut in pieces")
    left = [str(call.op) for call in calls(module[SAMPLED]) if isinstance(call.op, ir.GlobalVar)]
    if left:
        raise AssertionError(f"kernels of '{SAMPLED}' are outside of its graph: {left}")
    return module


def _result_outside(function: relax.Function) -> relax.Function:
    """The function with its result passed on by a call of its own. TVM takes that for no kernel, so
    a captured function has something to return: it gives back what only such a call reads, and its
    virtual machine runs no function without a result."""
    *blocks, last = function.body.blocks
    result = function.body.body
    call = relax.Call(relax.ExternFunc("vm.builtin.copy"), [result], ty_args=[result.ty])
    passed = relax.Var("passed", result.ty)
    last = relax.BindingBlock([*last.bindings, relax.VarBinding(passed, call)])
    body = relax.SeqExpr([*blocks, last], passed)
    return relax.Function(function.params, body, result.ty, function.is_pure, function.attrs)
