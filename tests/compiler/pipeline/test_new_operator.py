"""A new operator with a state needs a record, a kernel and a twin, and no change of the passes.

docs/internals/structure.md lists the files; this test adds one operator through all of them.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
import pytest

from mlcc.device.reference import executor
from mlcc.device.reference.caches import CachedOperator, LayerCache
from mlcc.device.reference.executor import ReferenceExecutor
from mlcc.device.reference.step_view import StepView
from mlcc.engine.batch.batch import Batch, BatchWriter, Capacity, StateSlot
from mlcc.engine.batch.tables import CacheGroup, StepLayout
from mlcc_compiler.ir._tvm import T, Tensor, nn, relax, tvm
from mlcc_compiler.ir.caches import (
    RECORDS,
    CacheLayout,
    Caches,
    CacheSpec,
    CacheTensor,
    StateRecord,
)
from mlcc_compiler.ir.graph import Traced
from mlcc_compiler.ir.graph_json import graph_to_json
from mlcc_compiler.kernels.cpu.isa.isa import SSE2, Isa
from mlcc_compiler.kernels.cpu.kernel_set import cpu_kernels
from mlcc_compiler.kernels.frame import (
    SIZE,
    Expr,
    PrimFunc,
    f32,
    i32,
    kernel,
    store,
    tensor_argument,
)
from mlcc_compiler.kernels.step import Step, step_argument
from mlcc_compiler.models import ops
from mlcc_compiler.passes.cache_groups import caches_of
from mlcc_compiler.passes.lower import LowerOperators
from mlcc_compiler.passes.paged_kv import PagedKV
from mlcc_compiler.pipeline import trace

SLOTS = 4
FACTOR = np.array([2.5], np.float32)
STEPS = (((3, -1, 1), (2, -1, 0)), ((1, 0, 0), (4, 1, 2)), ((1, 2, 2),))
"""(tokens, slot_in, slot_out) of each sequence, step after step."""


@pytest.fixture
def record(monkeypatch: pytest.MonkeyPatch) -> StateRecord:
    """The record of `running_sum`, an operator for this test, and its twin in the table."""
    monkeypatch.setitem(RECORDS, "running_sum", StateRecord)  # so that it is taken out again

    @dataclass(frozen=True)
    class SumShape(StateRecord):
        operator: ClassVar = "running_sum"
        tensors: ClassVar = ("total",)
        begin: float

        def cache_spec(self, page_size: int, dtype: str) -> CacheSpec:
            return CacheSpec(CacheGroup("state"), (CacheTensor("total", (1,), "float32"),))

    monkeypatch.setitem(executor.OPERATORS, "mlcc.running_sum", CachedOperator(twin))
    return SumShape(0.5)


def twin(step: StepView, cache: LayerCache, factor: Any, x: Any, *, begin: float) -> Any:
    """`begin`, and factor f32[1] times x i32[n] summed over each sequence up to each token:
    f32[n, 1]."""
    first, states = step.sequences("first_token"), cache.tensors["total"]
    sources, slots = (step.sequences(f"{name}.{cache.group}") for name in ("slot_in", "slot_out"))
    out = np.zeros((len(x), 1), states.dtype)
    for s, (own, end) in enumerate(pairwise(first)):
        before = states[sources[s]] if sources[s] >= 0 else begin
        out[own:end, 0] = before + factor * np.cumsum(x[own:end])
        states[slots[s]] = out[end - 1]
    return out


def running_sum(isa: Isa, layout: CacheLayout, record: Any) -> PrimFunc:
    """(factor f32[1], x i32[n], step, states, sequences) -> f32[n, 1]: the kernel."""

    def body(factor: Expr, x: Expr, words: Expr, states: Expr, most: Expr, out: Expr) -> None:
        step, group, begin = Step(layout.step, words), layout.group, T.float32(record.begin)
        with T.serial(step.count("sequences")) as s:
            slot, source = (step.sequence(s, f"{name}.{group}") for name in ("slot_out", "slot_in"))
            before = T.if_then_else(source < 0, begin, states[T.max(source, 0), 0])
            store(states, before, slot, 0)
            first = step.sequence(s, "first_token")
            with T.serial(step.sequence(s + 1, "first_token") - first) as t:
                more = factor[0] * T.Cast("float32", x[first + t])
                store(states, states[slot, 0] + more, slot, 0)
                store(out, states[slot, 0], first + t, 0)

    (kept,) = layout.tensors
    shared = {"step": step_argument(layout.step), "states": tensor_argument(kept)}
    arguments = {"factor": f32(1), "x": i32("n"), **shared, "sequences": SIZE}
    return kernel(body, **arguments, out=f32("n", 1))


class Sums(nn.Module):
    """A model of that operator alone, in layer 3."""

    def __init__(self, record: StateRecord) -> None:
        self.record = record
        self.factor = nn.Parameter((1,), "float32")

    def forward(self, token_ids: Tensor, positions: Tensor, logit_rows: Tensor) -> Tensor:
        attributes = [3, self.record.to_json()]
        inputs = [self.factor, token_ids]
        return ops._call("running_sum", inputs, attributes, [token_ids.shape[0], 1])


def steps(layout: StepLayout) -> list[Batch]:
    batches = []
    for rows in STEPS:
        writer = BatchWriter(layout, memoryview(np.zeros(layout.words, np.int32)))
        for count, source, slot in rows:
            writer.sequence(range(5, 5 + count), 0, [StateSlot(source, slot)])
        batches.append(writer.finish())
    return batches


def on_cpu(traced: Traced, caches: Caches, layout: StepLayout) -> list[Any]:
    """The results of the compiled library, one per step."""
    plain = cpu_kernels(SSE2)
    kernels = replace(plain, factories={**plain.factories, "running_sum": running_sum})
    module = PagedKV(traced.module, caches, layout, kernels).run()
    module = LowerOperators(module, kernels, traced.names).run()
    machine = relax.VirtualMachine(relax.build(module, tvm.target.Target("llvm")), tvm.cpu())
    states = tvm.runtime.tensor(np.full((SLOTS, 1), np.nan, np.float32))
    last, factor = tvm.runtime.tensor(np.zeros(1, np.int32)), tvm.runtime.tensor(FACTOR)
    outputs = []
    for batch in steps(layout):
        words = tvm.runtime.tensor(np.frombuffer(batch.words, np.int32))
        sizes = tvm.runtime.ShapeTuple(batch.sizes)
        outputs.append(machine["forward"](words, sizes, last, (states,), (factor,)).numpy())
    return outputs


def test_an_operator_with_a_state_needs_no_pass(record: StateRecord) -> None:
    """The library equals the reference executor, and both equal the twin's formula."""
    traced = trace(Sums(record))  # type: ignore[arg-type]
    caches = caches_of(traced.module, 16, "float16")
    assert caches.plans[0].layers == (3,) and caches.groups == (CacheGroup("state"),)
    layout = StepLayout(caches.groups, 16, 4, 4, 8, 2)
    capacity = Capacity(16, 32, layout, (SLOTS,), 4, 16, 4)
    graph = json.loads(graph_to_json(traced))
    oracle = ReferenceExecutor(graph, {"factor": FACTOR}, capacity, caches.infos([SLOTS]))
    expected = [oracle.logits(batch) for batch in steps(layout)]
    for found, wanted in zip(on_cpu(traced, caches, layout), expected, strict=True):
        np.testing.assert_array_equal(found, wanted)  # small numbers: sums are exact
    assert expected[0][:, 0].tolist() == [0.5 + 2.5 * x for x in (5, 11, 18, 5, 11)]
    assert expected[2].item() == 0.5 + 2.5 * (18 + 5 + 6 + 7 + 8 + 5)
