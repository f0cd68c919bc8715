"""Kernel sets are tables: each operator of a model has a row in both, and needs nothing else."""

from __future__ import annotations

import inspect
from dataclasses import replace

import numpy as np
import pytest

from mlcc.device.reference import executor
from mlcc.device.reference.caches import CachedOperator
from mlcc.errors import UnsupportedError
from mlcc_compiler.ir._tvm import T, Tensor, nn, relax, tvm
from mlcc_compiler.ir.caches import RECORDS, LayerRecord, PagedRecord, StateRecord
from mlcc_compiler.ir.layout import AttentionShape
from mlcc_compiler.kernels.cpu.isa.isa import Isa
from mlcc_compiler.kernels.cpu.kernel_set import cpu_kernels
from mlcc_compiler.kernels.frame import Expr, PrimFunc, Sizes, f32, kernel, store
from mlcc_compiler.kernels.gpu.device import Gpu
from mlcc_compiler.kernels.gpu.kernel_set import gpu_kernels
from mlcc_compiler.kernels.kernel_set import KernelSet
from mlcc_compiler.models import ops
from mlcc_compiler.passes.lower import LowerOperators
from tests.compiler.kernels.cases.cpu_kernels import BEST, normal

SETS = [cpu_kernels(BEST.isa), gpu_kernels(Gpu())]
OPERATORS = [
    name
    for name, function in inspect.getmembers(ops, inspect.isfunction)
    if function.__module__ == ops.__name__ and not name.startswith("_")
]


@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize("kernels", SETS, ids=["cpu", "gpu"])
def test_every_operator_has_a_row(kernels: KernelSet, operator: str) -> None:
    assert operator in {**kernels.factories, **kernels.emitters}


@pytest.mark.parametrize("operator", OPERATORS)
def test_every_operator_has_a_twin(operator: str) -> None:
    remembers = isinstance(executor.OPERATORS[f"mlcc.{operator}"], CachedOperator)
    assert remembers == (operator in RECORDS)


def test_there_are_operators() -> None:
    assert {"linear", "attention", "rms_norm"} <= set(OPERATORS)
    assert {"attention", "delta_rule"} <= set(RECORDS) <= set(OPERATORS)


@pytest.mark.parametrize("record", RECORDS.values(), ids=list(RECORDS))
@pytest.mark.parametrize("kernels", SETS, ids=["cpu", "gpu"])
def test_every_record_names_kernels_that_are_there(
    kernels: KernelSet, record: type[LayerRecord]
) -> None:
    if issubclass(record, PagedRecord):
        assert record.append in kernels.factories
        assert record.operator in kernels.emitters
    else:
        assert issubclass(record, StateRecord)
        assert record.operator in kernels.factories


@pytest.mark.parametrize("kernels", SETS, ids=["cpu", "gpu"])
def test_layers_share_a_kernel(kernels: KernelSet) -> None:
    first = kernels.kernel("softcap", (64,), 30.0)
    assert kernels.kernel("softcap", (64,), 30.0) is first
    assert kernels.kernel("softcap", (64,), 50.0) is not first


@pytest.mark.parametrize("kernels", SETS, ids=["cpu", "gpu"])
def test_an_operator_without_a_row_is_refused_by_name(kernels: KernelSet) -> None:
    with pytest.raises(UnsupportedError, match=r"have no 'scan_state'.*mlcc targets"):
        kernels.kernel("scan_state", (64,))
    with pytest.raises(UnsupportedError, match="have no 'scan_state'"):
        kernels.emit("scan_state", None)  # type: ignore[arg-type]


@pytest.mark.parametrize("window", [None, 128])
@pytest.mark.parametrize("softcap", [None, 50.0])
def test_an_attention_shape_survives_the_graph(window: int | None, softcap: float | None) -> None:
    shape = AttentionShape(8, 4, 32, 32**-0.5, window, softcap)
    assert AttentionShape.from_json(shape.to_json()) == shape


def weighted(isa: Isa, row: Sizes, weight: Sizes, factor: float) -> PrimFunc:
    """(x f32[n, width], w f32[width]) -> factor * x * w: an operator that no pass knows."""

    def body(x: Expr, w: Expr, out: Expr) -> None:
        with T.grid(x.shape[0], row[0]) as (i, j):
            store(out, x[i, j] * w[j] * T.float32(factor), i, j)

    return kernel(body, x=f32("n", *row), w=f32(*weight), out=f32("n", *row))


class Weighted(nn.Module):
    """A model of that operator alone."""

    def __init__(self) -> None:
        self.weight = nn.Parameter((24,), "float32")

    def forward(self, x: Tensor) -> Tensor:
        return ops._call("weighted", [x, self.weight], [2.5], x.shape)


def test_a_new_operator_needs_a_row_and_no_pass() -> None:
    spec = {
        "forward": {
            "x": nn.spec.Tensor(["n", 24], "float32"),
            "$": {"param_mode": "packed", "effect_mode": "none"},
        }
    }
    module, parameters = Weighted().export_tvm(spec)
    plain = cpu_kernels(BEST.isa)
    kernels = replace(plain, factories={**plain.factories, "weighted": weighted})
    lowering = LowerOperators(module, kernels, [name for name, _ in parameters])
    lowered = lowering.run()
    assert [plan.names() for plan in lowering.plans] == [["weight"]]
    executable = relax.build(lowered, tvm.target.Target("llvm"))
    machine = relax.VirtualMachine(executable, tvm.cpu())
    x, w = normal(0, 5, 24), normal(1, 24)
    out = machine["forward"](tvm.runtime.tensor(x), (tvm.runtime.tensor(w),)).numpy()
    np.testing.assert_allclose(out, 2.5 * x * w, rtol=1e-6)


def test_sets_of_an_equal_device_share_kernels() -> None:
    """Vulkan and WebGPU have sets of their own, and so does each model."""
    built: list[Gpu] = []

    def factory(gpu: Gpu, width: int) -> PrimFunc:
        built.append(gpu)
        return tvm.tirx.PrimFunc([], tvm.tirx.Evaluate(width))

    one, equal, other = (gpu_kernels(gpu) for gpu in (Gpu(), Gpu(), Gpu(f16=False)))
    shared = one.cached_kernel(factory, 3)
    assert equal.cached_kernel(factory, 3) is shared
    assert other.cached_kernel(factory, 3) is not shared
    assert one.cached_kernel(factory, 4) is not shared
    assert built == [one.device, other.device, one.device]
