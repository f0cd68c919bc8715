"""The operators that remember: what each one's record is, and how it is lowered.

`cache_groups` reads from the records what layers keep; `paged_kv` lowers by the rows. A new
operator is a row here, and its kernels in the kernel sets.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from mlcc_compiler._tvm import relax
from mlcc_compiler.caches import LayerRecord
from mlcc_compiler.graph import PREFIX, call_parts, literal
from mlcc_compiler.latent import LatentShape
from mlcc_compiler.layout import AttentionShape
from mlcc_compiler.states import ConvShape, DeltaShape


@dataclass(frozen=True)
class Paged:
    """Keeps tokens in pages: `append`, a kernel, writes those of the step; `attend`, an emitter,
    reads all."""

    record: type[LayerRecord]
    append: str
    attend: str
    queries: int = 1
    """How many of its tensors ask; the others are appended."""


@dataclass(frozen=True)
class State:
    """Keeps one state a sequence: the kernel of its own name reads `slot_in`, writes `slot_out`
    and makes the operator's value."""

    record: type[LayerRecord]


OPERATORS: dict[str, Paged | State] = {
    "attention": Paged(AttentionShape, "append_kv", "attention"),
    "latent_attention": Paged(LatentShape, "append_latent", "latent_attention", queries=3),
    "causal_conv": State(ConvShape),
    "delta_rule": State(DeltaShape),
}
"""Their last two arguments are the layer's number and the record's text."""


def records_of(function: relax.Function) -> Iterator[tuple[int, LayerRecord]]:
    """(layer, record) of each call that remembers, in order."""
    for block in function.body.blocks:
        for binding in block.bindings:
            if isinstance(binding.value, relax.Call):
                name, arguments = call_parts(binding.value)
                row = OPERATORS.get(name.removeprefix(PREFIX))
                if row is not None:
                    layer, text = map(literal, arguments[-2:])
                    yield int(layer), row.record.of_text(str(text))
