"""Pass: lower `mlcc.attention` to "append keys and values to the pages, then attend over them".

After it, `forward` takes the arrays of a batch (`mlcc.engine.batch`) and the page tensors of every
layer. Three rules keep the in-place append honest, each seen to fail silently otherwise:
the appended pages are a new variable and the old one is never used again; the kernel is opaque to
fusion (op_pattern 8); and no pass that merges or reorders equal calls runs afterwards.
`check_appends` counts that every layer still appends in the final module.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mlcc_compiler._tvm import ir, relax, tirx
from mlcc_compiler.kernels.kernel_set import KernelSet
from mlcc_compiler.models.config import DecoderConfig
from mlcc_compiler.passes.rewrite import Rewriter, dims, literal, tensor

APPEND = "append_kv"
PAGE_DIMS = 5


@dataclass(frozen=True)
class KvLayout:
    """The page tensors: one per layer, [num_pages, 2, kv_heads, page_size, head_dim]."""

    page_size: int
    dtype: str
    layers: int
    kv_heads: int
    head_dim: int

    @classmethod
    def of(cls, config: DecoderConfig, page_size: int, dtype: str) -> KvLayout:
        return cls(page_size, dtype, config.num_layers, config.num_kv_heads, config.head_dim)

    @property
    def page_shape(self) -> tuple[int, int, int, int]:
        return (2, self.kv_heads, self.page_size, self.head_dim)

    @property
    def bytes_per_token(self) -> int:
        item = 2 if self.dtype == "float16" else 4
        return self.layers * 2 * self.kv_heads * self.head_dim * item


class PagedKV(Rewriter):
    """Adds the batch and page parameters, and resolves the placeholders of tokens just sampled."""

    def __init__(self, module: ir.IRModule, layout: KvLayout, kernels: KernelSet) -> None:
        super().__init__(module)
        self.layout, self.kernels = layout, kernels

    def setup(self, function: relax.Function) -> list[relax.Var]:
        self.token_ids, positions, logit_rows, weights = function.params
        tokens, (num_pages, last) = self.token_ids.ty.shape.values[0], _symbols("num_pages", "m")
        batch, pages = _symbols("b", "p")
        layout = self.layout
        int32 = {
            "token_slots": [tokens],
            "qo_indptr": [batch + 1],
            "page_indptr": [batch + 1],
            "page_indices": [pages],
            "last_page_len": [batch],
        }
        self.batch = {name: relax.Var(name, tensor(s, "int32")) for name, s in int32.items()}
        self.last_sampled = relax.Var("last_sampled", tensor([last], "int32"))
        page_type = tensor([num_pages, *layout.page_shape], layout.dtype)
        self.pages = relax.Var("kv", relax.TupleType([page_type] * layout.layers))
        inputs = [self.token_ids, positions, logit_rows, *self.batch.values()]
        return [*inputs, self.last_sampled, self.pages, weights]

    def begin(self) -> None:
        resolve = self.kernels.resolve_tokens()
        arguments = [self.token_ids, self.last_sampled]
        resolved = self.call_tir(resolve, "resolve_tokens", arguments, self.token_ids.ty)
        self.values[self.token_ids] = resolved

    def op_attention(self, arguments: list[Any], call: relax.Call) -> Any:
        q, k, v, *attributes = arguments
        layer, scale, window, softcap = (literal(a) for a in attributes)
        pages = self._append(k, v, int(layer))
        return self._attend(q, pages, scale, window, softcap)

    def _attend(self, q: Any, pages: Any, scale: Any, window: Any, softcap: Any) -> Any:
        names = ("qo_indptr", "page_indptr", "page_indices", "last_page_len")
        inputs = [q, pages, *(self.batch[name] for name in names)]
        return self.kernels.paged_attention(
            self, inputs, self.layout, float(scale), int(window) or None, float(softcap) or None
        )

    def op_attention_qkv(self, arguments: list[Any], call: relax.Call) -> Any:
        """Like `attention`, of q, k and v side by side, yet to be normalised and rotated."""
        qkv, table, norms, layer, scale, window, softcap, eps, offset = arguments
        q, pages = self._rotate_and_append(
            qkv, table, list(norms.fields), int(literal(layer)), literal(eps), literal(offset), call
        )
        return self._attend(q, pages, literal(scale), literal(window), literal(softcap))

    def _rotate_and_append(
        self, qkv: Any, table: Any, norms: list[Any], layer: int, eps: Any, offset: Any, call: Any
    ) -> tuple[relax.Var, relax.Var]:
        old = self.builder.emit(relax.TupleGetItem(self.pages, layer))
        out = call.ty_args[0]
        norm = (float(eps), float(offset)) if norms else None
        heads, rotary = int(out.shape.values[1]), dims(table)[1]
        kernel = self.kernels.rotate_and_append(self.layout, heads, rotary, norm)
        function = self.builder.add_func(kernel, APPEND)
        inputs = [qkv, table, *norms, self.batch["token_slots"], old]
        pair = self.builder.emit(
            relax.op.call_tir_inplace(function, inputs, [len(inputs) - 1, -1], [old.ty, out])
        )
        pages, q = self.items(pair, 2)
        return q, pages

    def _append(self, k: Any, v: Any, layer: int) -> relax.Var:
        """The pages of a layer with this step's keys and values in them."""
        old = self.builder.emit(relax.TupleGetItem(self.pages, layer))
        kernel = self.builder.add_func(self.kernels.append_kv(self.layout), APPEND)
        arguments = [k, v, self.batch["token_slots"], old]
        return self.builder.emit(relax.op.call_tir_inplace(kernel, arguments, [3], old.ty))


def check_appends(module: ir.IRModule, layers: int) -> None:
    """Raise AssertionError unless the final module appends to `layers` distinct page tensors."""
    pages: set[Any] = set()

    def visit(node: Any) -> None:
        if isinstance(node, relax.Call) and getattr(node.op, "name_hint", "") == APPEND:
            pages.update(a for a in node.args if getattr(a.ty, "ndim", 0) == PAGE_DIMS)

    relax.analysis.post_order_visit(module["forward"], visit)
    if len(pages) != layers:
        raise AssertionError(f"{len(pages)} KV appends for {layers} layers: a pass changed them")


def _symbols(*names: str) -> tuple[Any, ...]:
    return tuple(tirx.Var(name, "int64") for name in names)
