"""Pass: lower `mlcc.attention` to "append keys and values to the pages, then attend over them".

After it, `forward` takes a step (`mlcc.engine.tables`), its sizes, and the tensors of all caches.
Three rules keep the in-place append honest, each seen to fail silently otherwise: the appended
pages are a new variable and the old one is never used again; the kernel is opaque to fusion
(op_pattern 8); and no pass that merges or reorders equal calls runs afterwards. `check_appends`
counts that every layer still appends in the final module.
"""

from __future__ import annotations

from typing import Any

from mlcc.engine.tables import StepLayout
from mlcc_compiler._tvm import ir, relax
from mlcc_compiler.graph import dims, literal, tensor
from mlcc_compiler.kernels.kernel_set import KernelSet
from mlcc_compiler.layout import AttentionShape, Caches
from mlcc_compiler.passes.rewrite import Rewriter
from mlcc_compiler.passes.variables import cache_variable, size_variable, step_variable

APPEND = "append_kv"
PAGE_DIMS = 5


class PagedKV(Rewriter):
    """Makes a step and the caches the parameters of `forward`."""

    def __init__(
        self, module: ir.IRModule, caches: Caches, step: StepLayout, kernels: KernelSet
    ) -> None:
        super().__init__(module)
        self.caches, self.layout, self.kernels = caches, step, kernels

    def setup(self, function: relax.Function) -> list[relax.Var]:
        *self.inputs, weights = function.params
        self.step = step_variable(self.layout)
        known = {"n": self.inputs[0].ty.shape.values[0], "r": self.inputs[2].ty.shape.values[0]}
        self.sizes = {s: known[s] if s in known else size_variable(s) for s in self.layout.sizes}
        sizes = relax.Var("sizes", relax.ShapeType(list(self.sizes.values())))
        self.last_sampled = relax.Var("last_sampled", tensor([size_variable("m")], "int32"))
        self.tensors = cache_variable(self.caches, self.layout)
        return [self.step, sizes, self.last_sampled, self.tensors, weights]

    def begin(self) -> None:
        """One kernel makes plain arrays of what every layer reads."""
        groups = [g for g, group in enumerate(self.layout.groups) if group.has_pages]
        tokens, rows = (tensor([self.sizes[name]], "int32") for name in ("n", "r"))
        out = [tokens, tokens, rows, *([tokens] * len(groups))]
        kernel = self.kernels.kernel("read_step", self.layout)
        found = self.call_tir(kernel, "read_step", [self.step, self.last_sampled], out)
        values = self.items(found, len(out))
        self.values.update(zip(self.inputs, values, strict=False))
        self.slots = dict(zip(groups, values[len(self.inputs) :], strict=True))

    def op_attention(self, arguments: list[Any], call: relax.Call) -> Any:
        q, k, v, layer, shape = arguments
        return self._attend(q, self._append("append_kv", [k, v], layer), layer, shape)

    def op_attention_qkv(self, arguments: list[Any], call: relax.Call) -> Any:
        """Like `attention`, of q, k and v side by side, yet to be normalised and rotated."""
        qkv, table, norms, layer, shape, eps, offset = arguments
        norm = (float(literal(eps)), float(literal(offset))) if norms.fields else None
        out = call.ty_args[0]
        numbers = (int(out.shape.values[1]), dims(table)[1], norm)
        inputs = [qkv, table, *norms.fields]
        pair = self._append("rotate_and_append", inputs, layer, *numbers, out=[out])
        pages, q = self.items(pair, 2)
        return self._attend(q, pages, layer, shape)

    def _append(
        self, operator: str, inputs: list[Any], layer: Any, *numbers: Any, out: Any = ()
    ) -> relax.Var:
        """Emit a kernel that writes a layer's pages; gives them, and what it makes beside them."""
        group, place = self.caches.place(int(literal(layer)))
        old = self.builder.emit(relax.TupleGetItem(self.tensors, place))
        kernel = self.kernels.kernel(operator, self.caches.layout(group, self.layout), *numbers)
        function = self.builder.add_func(kernel, APPEND)
        inputs = [*inputs, self.slots[group], old]
        places = [len(inputs) - 1, *([-1] * len(out))]
        types = [old.ty, *out] if out else old.ty
        return self.builder.emit(relax.op.call_tir_inplace(function, inputs, places, types))

    def _attend(self, q: Any, pages: Any, layer: Any, shape: Any) -> Any:
        group, _ = self.caches.place(int(literal(layer)))
        sizes = (self.sizes["b"], self.sizes[f"p{group}"])
        numbers = AttentionShape.of_text(str(literal(shape)))
        layout = self.caches.layout(group, self.layout)
        return self.kernels.emit("attention", self, [q, pages, self.step], sizes, numbers, layout)


def check_appends(module: ir.IRModule, layers: int) -> None:
    """Raise AssertionError unless the final module appends to `layers` distinct page tensors."""
    pages: set[Any] = set()

    def visit(node: Any) -> None:
        if isinstance(node, relax.Call) and getattr(node.op, "name_hint", "") == APPEND:
            pages.update(a for a in node.args if getattr(a.ty, "ndim", 0) == PAGE_DIMS)

    relax.analysis.post_order_visit(module["forward"], visit)
    if len(pages) != layers:
        raise AssertionError(f"{len(pages)} KV appends for {layers} layers: a pass changed them")
