"""Pass: lowers stateful operators to kernels that update the caches in place.

`mlcc.attention` becomes "append keys and values to the pages, then attend over them"; an operator's
record decides its lowering (`ir/caches.py`). Afterwards `forward` takes a step
(`mlcc.engine.batch.tables`), its sizes, and the tensors of all caches. Three rules keep in-place
updates correct, each seen to fail silently otherwise: the updated tensor is a new variable and the
old one is never used again; the kernel is opaque to fusion (op_pattern 8); and no pass that merges
or reorders equal calls runs afterwards. `check_updates` verifies that each tensor is still updated
once in the final module.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mlcc.engine.batch.tables import StepLayout
from mlcc_compiler.ir._tvm import ir, relax
from mlcc_compiler.ir.caches import RECORDS, CacheLayout, Caches, LayerRecord, PagedRecord
from mlcc_compiler.ir.graph import (
    ALIGN_ENTRY,
    MTP_ENTRY,
    PREFIX,
    call_parts,
    calls,
    check_dtypes,
    dims,
    dtype_of,
    literal,
    tensor,
)
from mlcc_compiler.ir.layout import AttentionShape
from mlcc_compiler.kernels.kernel_set import KernelSet
from mlcc_compiler.passes.rewrite import Rewriter
from mlcc_compiler.passes.variables import UPDATES, cache_variable, size_variable, step_variable


class PagedKV(Rewriter):
    """Makes a step and the caches parameters of `forward`."""

    def __init__(
        self,
        module: ir.IRModule,
        caches: Caches,
        step: StepLayout,
        kernels: KernelSet,
        entry: str = "",
    ) -> None:
        super().__init__(module, entry)
        self.caches, self.layout, self.kernels = caches, step, kernels
        self.updating: dict[Any, Any] = {}
        """Kernels -> the same with what they update in place."""
        self.written: dict[int, list[Any]] = {}
        """Place of a layer's first tensor -> its pages, once the step's tokens are in them."""

    def setup(self, function: relax.Function) -> list[relax.Var]:
        *self.inputs, weights = function.params
        self.step = step_variable(self.layout)
        known = {"n": self.inputs[0].ty.shape.values[0], "r": self.inputs[2].ty.shape.values[0]}
        self.sizes = {s: known[s] if s in known else size_variable(s) for s in self.layout.sizes}
        sizes = relax.Var("sizes", relax.ShapeType(list(self.sizes.values())))
        self.last_sampled = relax.Var("last_sampled", tensor([size_variable("m")], "int32"))
        self.tensors = cache_variable(self.caches)
        return [self.step, sizes, self.last_sampled, self.tensors, weights]

    def begin(self) -> None:
        """Emit the kernel that unpacks the step into the arrays that every layer reads."""
        groups = [g for g, group in enumerate(self.layout.groups) if group.has_pages]
        tokens, rows = (tensor([self.sizes[name]], "int32") for name in ("n", "r"))
        out = [tokens, tokens, rows, *([tokens] * len(groups))]
        kernel = self.kernels.kernel("read_step", self.layout)
        found = self.call_tir(kernel, "read_step", [self.step, self.last_sampled], out)
        values = self.items(found, len(out))
        self.values.update(zip(self.inputs, values, strict=False))
        self.slots = dict(zip(groups, values[len(self.inputs) :], strict=True))

    def rewrite(self, expr: Any) -> Any:
        """Lower a stateful operator, by the class of its record."""
        if isinstance(expr, relax.Call):
            name, arguments = call_parts(expr)
            kind = RECORDS.get(name.removeprefix(PREFIX))
            if kind is not None:
                *tensors, layer, text = [self.value(argument) for argument in arguments]
                record = kind.from_json(str(literal(text)))
                ref = self._cache_ref(int(literal(layer)), record)
                if isinstance(record, PagedRecord):
                    return self._paged(record, tensors, ref)
                return self._state(record, tensors, ref, expr.ty_args[0])
        return super().rewrite(expr)

    def op_attention_qkv(self, arguments: list[Any], call: relax.Call) -> Any:
        """`attention` of q, k and v side by side, not yet normalised or rotated."""
        qkv, table, norms, layer, text, eps, offset = arguments
        norm = (float(literal(eps)), float(literal(offset))) if norms.fields else None
        shape = AttentionShape.from_json(str(literal(text)))
        out = tensor([dims(qkv)[0], shape.heads, shape.head_dim], dtype_of(qkv))
        numbers = (shape.heads, dims(table)[1], norm)
        ref = self._cache_ref(int(literal(layer)), shape)
        inputs = [qkv, table, *norms.fields, self.slots[ref.layout.group]]
        *pages, q = self._update("rotate_and_append", inputs, ref, *numbers, out=[out])
        self.written[ref.first] = pages
        return self._attend([q], pages, ref)

    def op_inputs_embeds(self, arguments: list[Any], call: relax.Call) -> Any:
        """The rows are the last of the caches' tensors."""
        *tensors, width, first, part, parts, added = arguments
        numbers = (
            *(int(literal(number)) for number in (width, first)),
            len(tensors) > 1,
            *(int(literal(number)) for number in (part, parts, added)),
        )
        rows = self.builder.emit(relax.TupleGetItem(self.tensors, len(self.caches.tensors)))
        kernel = self.kernels.kernel("inputs_embeds", *numbers)
        return self.call_tir(kernel, "inputs_embeds", [*tensors, rows], call.ty_args[0])

    def op_cross_attention(self, arguments: list[Any], call: relax.Call) -> Any:
        """The step says where a sequence's rows begin among the last of the caches' tensors."""
        q, layer, layers, rows, scale = arguments
        numbers = (
            *(int(literal(number)) for number in (layer, layers, rows)),
            float(literal(scale)),
        )
        kernel = self.kernels.kernel("cross_attention", self.layout, tuple(dims(q)[1:]), *numbers)
        embeddings = self.builder.emit(relax.TupleGetItem(self.tensors, len(self.caches.tensors)))
        return self.call_tir(kernel, "cross_attention", [q, self.step, embeddings], call.ty_args[0])

    def op_cross_weights(self, arguments: list[Any], call: relax.Call) -> Any:
        """The same of some heads, without the sums of values."""
        q, tokens, heads, layer, layers, rows, scale = arguments
        numbers = (
            tuple(map(int, str(literal(heads)).split(","))),
            *(int(literal(number)) for number in (layer, layers, rows)),
            float(literal(scale)),
        )
        kernel = self.kernels.kernel("cross_weights", self.layout, tuple(dims(q)[1:]), *numbers)
        embeddings = self.builder.emit(relax.TupleGetItem(self.tensors, len(self.caches.tensors)))
        inputs = [q, tokens, self.step, embeddings]
        return self.call_tir(kernel, "cross_weights", inputs, call.ty_args[0])

    def op_keep_hidden(self, arguments: list[Any], call: relax.Call) -> Any:
        """The states of all tokens go to the last rows of the embeddings."""
        old = self.builder.emit(relax.TupleGetItem(self.tensors, len(self.caches.tensors)))
        out, numbers = call.ty_args[0], (dims(arguments[0])[1], dims(old)[1])
        kernel = self.kernels.kernel("keep_hidden", self.layout, *numbers)
        check_dtypes(kernel, "keep_hidden", [*arguments, old], [out])
        function = self.add(kernel.with_attr(UPDATES, [3]), "keep_hidden")
        call = relax.op.call_tir_inplace(function, [*arguments, old], [3, -1], [old.ty, out])
        _, rows = self.items(self.builder.emit(call), 2)
        return rows

    def op_hidden_states(self, arguments: list[Any], call: relax.Call) -> Any:
        """The step says which rows."""
        ids, width = arguments
        rows = self.builder.emit(relax.TupleGetItem(self.tensors, len(self.caches.tensors)))
        numbers = (self.layout, int(literal(width)), dims(rows)[1])
        kernel = self.kernels.kernel("hidden_states", *numbers)
        return self.call_tir(kernel, "hidden_states", [self.step, ids, rows], call.ty_args[0])

    def op_mrope_table(self, arguments: list[Any], call: relax.Call) -> Any:
        """The step has time, row and column of each token."""
        positions, inv_freq, scale, sections, interleaved = arguments
        numbers = (dims(inv_freq)[0], float(literal(scale)), str(literal(sections)))
        kernel = self.kernels.kernel(
            "mrope_table", self.layout, *numbers, int(literal(interleaved))
        )
        return self.call_tir(
            kernel, "mrope_table", [positions, inv_freq, self.step], call.ty_args[0]
        )

    def op_mean_rows(self, arguments: list[Any], call: relax.Call) -> Any:
        """The step says which tokens belong to which sequence."""
        kernel = self.kernels.kernel("mean_rows", self.layout, dims(arguments[0])[1])
        return self.call_tir(kernel, "mean_rows", [*arguments, self.step], call.ty_args[0])

    def _paged(self, record: PagedRecord, tensors: list[Any], ref: CacheRef) -> Any:
        if not record.reads_shared_kv:
            inputs = [*tensors[record.num_queries :], self.slots[ref.layout.group]]
            self.written[ref.first] = self._update(record.append, inputs, ref)
        return self._attend(tensors[: record.num_queries], self.written[ref.first], ref)

    def _state(self, record: LayerRecord, tensors: list[Any], ref: CacheRef, out: Any) -> Any:
        inputs, sizes = [*tensors, self.step], [self.sizes["b"]]
        *_, value = self._update(record.operator, inputs, ref, record, sizes=sizes, out=[out])
        return value

    def _cache_ref(self, layer: int, record: LayerRecord) -> CacheRef:
        group, _ = self.caches.locate(layer)
        first, own = self.caches.layer_tensors(layer, record)
        return CacheRef(record, first, CacheLayout(own, self.layout, group))

    def _update(
        self,
        operator: str,
        inputs: list[Any],
        ref: CacheRef,
        *numbers: Any,
        sizes: Sequence[Any] = (),
        out: Sequence[Any] = (),
    ) -> list[relax.Var]:
        """Emit a kernel that updates a layer's tensors in place, its arguments between `inputs` and
        `sizes`; returns them and its other outputs."""
        count = len(ref.layout.tensors)
        old = [
            self.builder.emit(relax.TupleGetItem(self.tensors, ref.first + i)) for i in range(count)
        ]
        written = list(range(len(inputs), len(inputs) + count))
        kernel = self.kernels.kernel(operator, ref.record.layout(ref.layout), *numbers)
        check_dtypes(kernel, operator, [*inputs, *old], list(out))
        if kernel not in self.updating:
            self.updating[kernel] = kernel.with_attr(UPDATES, written)
        function = self.add(self.updating[kernel], operator)
        types = [*(tensor.ty for tensor in old), *out]
        single = len(types) == 1
        call = relax.op.call_tir_inplace(
            function,
            [*inputs, *old, *sizes],
            [*written, *([-1] * len(out))],
            types[0] if single else types,
        )
        value = self.builder.emit(call)
        return [value] if single else self.items(value, len(types))

    def _attend(self, queries: list[Any], pages: list[Any], ref: CacheRef) -> Any:
        layout, operator = ref.layout, ref.record.operator
        sizes = (self.sizes["b"], self.sizes[f"p{layout.group}"])
        arguments = ([*queries, *pages, self.step], sizes, ref.record)
        return self.kernels.emit(operator, self, *arguments, ref.record.layout(layout))


@dataclass(frozen=True)
class CacheRef:
    """An operator's cache tensors: from index `first` among those of the library."""

    record: LayerRecord
    first: int
    layout: CacheLayout


def check_updates(module: ir.IRModule, caches: Caches) -> None:
    """Raise AssertionError unless each function that updates caches, `forward` among them, updates
    those of its layers, each once, and the hidden states if it keeps them; `forward_align` may end
    before the last layer."""
    everything, of_mtp = len(caches.tensors), caches.mtp_tensors
    wanted = {"copy_pages": everything, MTP_ENTRY: of_mtp + 1}
    counts = {v.name_hint: _updated(module, f) for v, f in module.functions.items()}
    for name, updated in counts.items():
        tensors = wanted.get(name, everything - of_mtp + (of_mtp > 0))
        tensors = min(tensors, len(updated)) if name == ALIGN_ENTRY else tensors
        if (updated or name == "forward") and not len(updated) == len(set(updated)) == tensors:
            raise AssertionError(
                f"{name} updates {len(updated)} tensors of caches, {len(set(updated))} of them "
                f"different, instead of {tensors}: a pass changed the calls"
            )


def _updated(module: ir.IRModule, function: Any) -> list[Any]:
    """The variables that a function's kernels update in place, once per update."""
    updated: list[Any] = []
    if not isinstance(function, relax.Function):
        return updated
    for call in calls(function):
        attributes = module[call.op].attrs if isinstance(call.op, ir.GlobalVar) else None
        if attributes and UPDATES in attributes:
            updated.extend(call.args[int(i)] for i in attributes[UPDATES])
    return updated
