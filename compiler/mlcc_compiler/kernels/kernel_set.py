"""A device's kernel set: a table from operator to factory, and the other differences between
devices.

A factory is called with the device, then for each tensor of the operator its static sizes
(`frame.Sizes`), then the attributes, both in the order of `models/ops.py`. It returns a TIR
PrimFunc of those tensors and the output, symbolic in the rows, private and opaque to fusion
(op_pattern 8). So an operator that is one kernel needs a row here and nothing in the passes.

An operator of several kernels, or with packed weights, has an emitter: it is called with the set
and the graph, and emits its calls. A packed weight is a `graph.Weight` with its scheme, which is
the operator's last attribute; the type of the value is passed as `out`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from mlcc.errors import UnsupportedError
from mlcc_compiler.ir.graph import Graph
from mlcc_compiler.ir.layout import WeightLayout
from mlcc_compiler.kernels.frame import PrimFunc
from mlcc_compiler.kernels.origins import record_origin

Factory = Callable[..., PrimFunc]
Emitter = Callable[..., Any]
Layout = Callable[[Any, Sequence[int], str], WeightLayout]
"""(device, shape, scheme) -> how a weight is stored."""


@dataclass(frozen=True, eq=False)
class KernelSet:
    """The kernels of one device."""

    device: Any
    """The device that factories choose by: `gpu.device.Gpu` or `cpu.isa.Isa`."""
    factories: Mapping[str, Factory]
    emitters: Mapping[str, Emitter]
    layouts: Mapping[str, Layout]
    """Layouts by use of the weight: the uses of `ops.READS`."""
    merges: frozenset[str]
    """What `passes/merge_projections.py` may merge: 'qkv', 'gate_up'."""
    shares_product: Callable[[Sequence[str], int], bool]
    """(schemes, K) -> whether one product reads weights [N, K] of these schemes."""
    fuses_gated: Callable[[Sequence[str], int, Sequence[str], int], bool] = lambda *_: False
    """(schemes of gate and up, K, schemes of their readers, K) -> whether `passes/fuse_gated.py`
    may make 'gated_linear' of gate and up, or 'activated_linear' of one projection."""
    rounding: Callable[[Sequence[Sequence[tuple[str, Sequence[int]]]]], str] | None = None
    """(of each product that reads x, the schemes and shapes of its weights) -> the column order
    in which `passes/round_activations.py` may give them x rounded; "" = none. None = never."""
    rounded_words: Callable[[str, int], int] = lambda order, width: width // 2
    """(a result of `rounding`, numbers of a row of x) -> words of a row."""
    rounds_parts: Callable[[str], bool] = bool
    """Whether a kernel can write a part of a row by a result of `rounding`, without the rest."""
    rounds_heads: Callable[[str, int], bool] = lambda order, head_dim: head_dim % 8 == 0
    """(a result of `rounding`, head_dim) -> whether attention can write it."""

    def kernel(self, operator: str, *arguments: Any) -> PrimFunc:
        """The kernel of an operator. Raises UnsupportedError if the set has none."""
        return self.cached_kernel(self._row(self.factories, operator), *arguments)

    def cached_kernel(self, factory: Factory, *arguments: Any) -> PrimFunc:
        """A kernel, built once for all layers and variants that use it."""
        return _built(factory, self.device, *arguments)

    def emit(self, operator: str, graph: Graph, *arguments: Any, **out: Any) -> Any:
        """Emit the calls of an operator; returns its value. Raises like `kernel`."""
        return self._row(self.emitters, operator)(self, graph, *arguments, **out)

    def layout(self, use: str, shape: Sequence[int], scheme: str) -> WeightLayout:
        """How a weight is stored: vectors in float32, others as the set's kernels read them."""
        if use == "vector":
            return WeightLayout.vector(tuple(shape))
        return self._row(self.layouts, use)(self.device, shape, scheme)

    def _row(self, table: Mapping[str, Callable[..., Any]], operator: str) -> Callable[..., Any]:
        if operator not in table:
            raise UnsupportedError(
                f"the kernels for {self.device} have no '{operator}', which this model needs; "
                "use another target (`mlcc targets` lists them)"
            )
        return table[operator]


@lru_cache(maxsize=1024, typed=True)
def _built(factory: Factory, device: Any, *arguments: Any) -> PrimFunc:
    """A kernel, also for another set of an equal device: building one takes up to 0.3 s."""
    kernel = factory(device, *arguments)
    record_origin(kernel, factory, device, *arguments)
    return kernel
