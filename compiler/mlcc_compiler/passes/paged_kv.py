"""Pass: lower `mlcc.attention` to "append keys and values to the pages, then attend over them".

After it, `forward` takes the arrays of a batch (`mlcc.engine.batch`) and the page tensors of every
layer. Three rules keep the in-place append honest, each seen to fail silently otherwise:
the appended pages are a new variable and the old one is never used again; the kernel is opaque to
fusion (op_pattern 8); and no pass that merges or reorders equal calls runs afterwards.
`check_appends` counts that every layer still appends in the final module.
"""

from __future__ import annotations

from typing import Any

from mlcc_compiler._tvm import ir, relax
from mlcc_compiler.graph import dims, literal
from mlcc_compiler.kernels.frame import page_argument
from mlcc_compiler.kernels.kernel_set import KernelSet
from mlcc_compiler.kernels.step import LAST_SAMPLED, SEQUENCES, TOKENS
from mlcc_compiler.layout import AttentionShape, KvLayout
from mlcc_compiler.passes.rewrite import Rewriter
from mlcc_compiler.passes.variables import tensor_of, variables

APPEND = "append_kv"
PAGE_DIMS = 5


class PagedKV(Rewriter):
    """Adds the batch and page parameters, and resolves the placeholders of tokens just sampled."""

    def __init__(self, module: ir.IRModule, layout: KvLayout, kernels: KernelSet) -> None:
        super().__init__(module)
        self.layout, self.kernels = layout, kernels

    def setup(self, function: relax.Function) -> list[relax.Var]:
        self.token_ids, positions, logit_rows, weights = function.params
        symbols = {"n": self.token_ids.ty.shape.values[0]}
        page_type = tensor_of(page_argument(self.layout), symbols)
        self.last_sampled = variables(LAST_SAMPLED, symbols)
        self.slots = variables(TOKENS, symbols)
        self.sequences = variables(SEQUENCES, symbols)
        self.pages = relax.Var("kv", relax.TupleType([page_type] * self.layout.layers))
        step = [self.token_ids, positions, logit_rows, *self.slots, *self.sequences]
        return [*step, *self.last_sampled, self.pages, weights]

    def begin(self) -> None:
        resolve = self.kernels.kernel("resolve_tokens")
        arguments = [self.token_ids, *self.last_sampled]
        resolved = self.call_tir(resolve, "resolve_tokens", arguments, self.token_ids.ty)
        self.values[self.token_ids] = resolved

    def op_attention(self, arguments: list[Any], call: relax.Call) -> Any:
        q, k, v, layer, shape = arguments
        pages = self._append(k, v, int(literal(layer)))
        return self._attend(q, pages, shape)

    def _attend(self, q: Any, pages: Any, shape: Any) -> Any:
        inputs = [q, pages, *self.sequences]
        numbers = AttentionShape.of_text(str(literal(shape)))
        return self.kernels.emit("attention", self, inputs, numbers, self.layout)

    def op_attention_qkv(self, arguments: list[Any], call: relax.Call) -> Any:
        """Like `attention`, of q, k and v side by side, yet to be normalised and rotated."""
        qkv, table, norms, layer, shape, eps, offset = arguments
        norm = (float(literal(eps)), float(literal(offset))) if norms.fields else None
        inputs = [qkv, table, *norms.fields]
        q, pages = self._rotate_and_append(inputs, int(literal(layer)), norm, call.ty_args[0])
        return self._attend(q, pages, shape)

    def _rotate_and_append(
        self, inputs: list[Any], layer: int, norm: tuple[float, float] | None, out: Any
    ) -> tuple[relax.Var, relax.Var]:
        old = self.builder.emit(relax.TupleGetItem(self.pages, layer))
        heads, rotary = int(out.shape.values[1]), dims(inputs[1])[1]
        kernel = self.kernels.kernel("rotate_and_append", self.layout, heads, rotary, norm)
        function = self.builder.add_func(kernel, APPEND)
        inputs = [*inputs, *self.slots, old]
        pair = self.builder.emit(
            relax.op.call_tir_inplace(function, inputs, [len(inputs) - 1, -1], [old.ty, out])
        )
        pages, q = self.items(pair, 2)
        return q, pages

    def _append(self, k: Any, v: Any, layer: int) -> relax.Var:
        """The pages of a layer with this step's keys and values in them."""
        old = self.builder.emit(relax.TupleGetItem(self.pages, layer))
        kernel = self.builder.add_func(self.kernels.kernel("append_kv", self.layout), APPEND)
        inputs = [k, v, *self.slots, old]
        call = relax.op.call_tir_inplace(kernel, inputs, [len(inputs) - 1], old.ty)
        return self.builder.emit(call)


def check_appends(module: ir.IRModule, layers: int) -> None:
    """Raise AssertionError unless the final module appends to `layers` distinct page tensors."""
    pages: set[Any] = set()

    def visit(node: Any) -> None:
        if isinstance(node, relax.Call) and getattr(node.op, "name_hint", "") == APPEND:
            pages.update(a for a in node.args if getattr(a.ty, "ndim", 0) == PAGE_DIMS)

    relax.analysis.post_order_visit(module["forward"], visit)
    if len(pages) != layers:
        raise AssertionError(f"{len(pages)} KV appends for {layers} layers: a pass changed them")
