"""GPU linear layers against their twin on dequantized weights: every scheme, odd sizes, parts."""

from __future__ import annotations

import tempfile
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mlcc.device.reference import ops as twin
from mlcc_compiler.ir._tvm import relax, tvm
from mlcc_compiler.ir.graph import Graph, Weight, tensor
from mlcc_compiler.ir.layout import WeightPlan
from mlcc_compiler.kernels.frame import f32, kernel, store
from mlcc_compiler.kernels.gpu.device import Gpu
from mlcc_compiler.kernels.gpu.elementwise import embedding
from mlcc_compiler.kernels.gpu.kernel_set import gpu_kernels
from mlcc_compiler.kernels.gpu.linear import gemv as linear_gemv
from mlcc_compiler.kernels.gpu.linear import linear, split_weights
from mlcc_compiler.kernels.gpu.linear import matrix_tile as linear_matrix_tile
from mlcc_compiler.kernels.gpu.linear.fragments import rounded
from mlcc_compiler.kernels.gpu.linear.fragments.fp8_rows import row_of
from mlcc_compiler.kernels.gpu.linear.fragments.gemm import fragment_gemm
from mlcc_compiler.kernels.gpu.linear.fragments.gemm_tile import tile_for
from mlcc_compiler.kernels.gpu.linear.fragments.gemv import fragment_gemv
from mlcc_compiler.kernels.gpu.linear.fragments.rounded import FEW
from mlcc_compiler.kernels.gpu.linear.fragments.split_k import SplitK
from mlcc_compiler.kernels.gpu.linear.gemm import gemm
from mlcc_compiler.kernels.gpu.linear.gemv import gemv
from mlcc_compiler.kernels.gpu.linear.matrix_unit import UNITS
from mlcc_compiler.kernels.gpu.linear.packing import GpuPacking
from mlcc_compiler.kernels.gpu.linear.variants import first_that_takes
from mlcc_compiler.kernels.gpu.linear.weight_reader import WeightReader, weight_arguments
from mlcc_compiler.kernels.gpu.linear.work_item import LinearWork
from mlcc_compiler.kernels.tir_pipeline import GPU_PIPELINE
from mlcc_compiler.quantization import Scheme, dequantize, quantize, scheme
from mlcc_compiler.quantization.floats import from_storage, to_storage
from tests.compiler.kernels.cases.gpu_kernels import (
    F16,
    F32,
    SMALL,
    VULKAN,
    call,
    device,
    normal,
    round_rows,
    run,
)
from tests.compiler.kernels.cases.scheme import KERNELS

pytestmark = pytest.mark.usefixtures("vulkan")

ROWS = (0, 1, 2, 3, 8, 16, 17, 33, 70)
WHOLE = 128 << 20


def packed(n_out: int, k: int, how: Scheme, binding: int = WHOLE) -> tuple[GpuPacking, Any, Any]:
    """(packing, stored arrays, the dequantized f32 matrix)."""
    packing = GpuPacking(n_out, k, how, binding)
    stored = packing.pack(normal(n_out * k, n_out, k) + np.float32(0.1))
    return packing, stored, packing.unpack(stored)


def bound(gpu: Gpu, x: Any, weight: Any, fragments: bool = False) -> Any:
    """The bound of the rounding error of each y: of f32 sums, and with f16 tiles also of x and
    weight; with fragments of x alone, for few rows."""
    unit = 2.0**-10 if gpu.f16 and len(x) > 8 else 2.0**-11 if fragments else 2.0**-20
    return np.float32(unit) * (np.abs(x) @ np.abs(weight).T) + np.float32(1e-6)


def check(
    gpu: Gpu,
    sizes: tuple[int, int],
    how: Scheme,
    bias: bool = False,
    rows: tuple[int, ...] = ROWS,
    factory: Any = linear.linear_part,
) -> None:
    packing, stored, weight = packed(*sizes, how)
    b = normal(1, packing.n) if bias else None
    for n in rows:
        x = normal(n, n, packing.k)
        inputs = [x, *stored, *([] if b is None else [b])]
        y = run(factory, (packing, 0, bias), inputs, [((n, packing.n), "float32")], gpu)[0]
        error = np.abs(y - twin.linear(x, weight, b))
        assert (error <= bound(gpu, x, weight)).all(), (n, error.max())


def check_fragments(
    gpu: Gpu, sizes: tuple[int, int], name: str, rows: tuple[int, ...], bias: bool = False
) -> None:
    """Weights as tensor cores take them: products, and rows looked up, to the bit."""
    packing = split_weights.packing(gpu, sizes, name)
    assert packing.fragments
    stored = packing.pack(normal(sizes[0], *sizes) + np.float32(0.1))
    weight, b = packing.unpack(stored), normal(1, packing.n) if bias else None
    factory = linear.linear_part if bias or max(rows) > 8 else few_rows
    last = [*stored, *([] if b is None else [b])]
    for n in rows:
        x = normal(n, n, packing.k)
        y = fragments_product(gpu, packing, factory, x, last)
        error = np.abs(y - twin.linear(x, weight, b))
        assert (error <= bound(gpu, x, weight, fragments=True)).all(), (n, error.max())
        if n and bias:  # where no weight beside it is 0: there the excess of codes shows
            x[:, 3] = 1e5  # beyond float16's range: its largest number
            far = fragments_product(gpu, packing, factory, x, last)
            x[:, 3] = 65504
            error = np.abs(far - twin.linear(x, weight, b))
            assert (error <= bound(gpu, x, weight, fragments=True)).all(), (n, error.max())
    tokens = np.array([0, 9, sizes[0] - 1, 8], np.int32)
    shape = [((4, packing.k), "float32")]
    y = run(embedding.embedding_part, (packing, 0), [tokens, *stored], shape, gpu)
    np.testing.assert_array_equal(y[0], weight[tokens])


def fragments_product(gpu: Gpu, packing: GpuPacking, factory: Any, x: Any, last: Any) -> Any:
    """y by a factory's kernel. `linear_part` takes x rounded, too, and leaves the counters 0."""
    n, y = len(x), np.full((len(x), packing.n), 77, np.float32)
    arguments = packing, 0, len(last) > len(packing.columns)
    if factory is few_rows:
        return call(factory, arguments, [x, *last, y], gpu)[-1]
    rounded = round_rows(gpu, packing, x)
    after = call(factory, arguments, [x, *rounded, *last, y], gpu)
    if n > 8:
        assert not after[2].any()
    for i in (0, 1):
        np.testing.assert_array_equal(after[i], [x, rounded[0]][i])
    return after[-1]


def check_shared_k(gpu: Gpu, sizes: tuple[int, int], name: str, rows: int) -> None:
    """A tile of x whose products workgroups share out by K; the same to the bit when repeated."""
    packing = split_weights.packing(gpu, sizes, name)
    tile = tile_for(gpu, 16, packing)
    steps = -(-packing.k // tile.depth)
    parts = SplitK(tile, steps, -(-packing.n // tile.columns), 1).parts
    assert parts > 2 and steps // parts > tile.stages - 1
    stored, x = packing.pack(normal(1, *sizes)), normal(2, rows, packing.k)
    y, again = (fragments_product(gpu, packing, shared_k, x, stored) for _ in range(2))
    weight = packing.unpack(stored)
    assert (np.abs(y - twin.linear(x, weight)) <= bound(gpu, x, weight)).all()
    np.testing.assert_array_equal(y, again)


def shared_k(gpu: Gpu, packing: GpuPacking, part: int, bias: bool) -> Any:
    """The variant for 16 rows that are all of x."""
    return many_rows(gpu, packing, 16, single=True)


def few_rows(gpu: Gpu, packing: GpuPacking, part: int, bias: bool) -> Any:
    """The variant for few rows of x by tensor cores alone; quicker to compile than all."""

    def body(x: Any, *buffers: Any) -> None:
        *tensors, y = buffers
        job = LinearWork(x, packing.n, lambda m, n, value: store(y, value, m, n))
        fragment_gemv(gpu, WeightReader(gpu, packing, tensors), job)

    arguments = {"x": f32("n", packing.k), **weight_arguments(packing, part)}
    return kernel(body, **arguments, y=f32("n", packing.n))


def many_rows(gpu: Gpu, packing: GpuPacking, *heights: int, single: bool = False) -> Any:
    """The variants for that many rows by tensor cores, with x in words."""

    fp8 = row_of(gpu, packing)

    def body(x: Any, *buffers: Any) -> None:
        *tensors, y = buffers
        words = tensors[0] if fp8 else x
        job = LinearWork(words, packing.n, lambda m, n, value: store(y, value, m, n))
        of_x, reader = rounded.Rounded(*tensors[:3]), WeightReader(gpu, packing, tensors[3:])
        emit = partial(fragment_gemm, gpu, reader, job, x=of_x, single=single, share=single)
        made = [(rows, partial(emit, rows)) for rows in heights if rows > FEW]
        if FEW in heights:
            made.insert(0, (FEW, partial(fragment_gemv, gpu, reader, job)))
        first_that_takes(x.shape[0], list(made))

    more = {**rounded.rounded_arguments(packing.k, fp8), **weight_arguments(packing, 0)}
    return kernel(body, x=f32("n", packing.k), **more, y=f32("n", packing.n))


def two_variants(gpu: Gpu, packing: GpuPacking, part: int, bias: bool) -> Any:
    """`linear_part` with a variant of each kind; quicker to compile than all of them."""

    def body(x: Any, *buffers: Any) -> None:
        *tensors, y = buffers
        reader = WeightReader(gpu, packing, tensors)
        variants: list[Any] = []
        for most, emit, size in ((8, gemv, 3), (32, gemm, 2)):
            finish = lambda m, n, value: store(y, value, m, n)  # noqa: E731
            job = LinearWork(x, packing.n, finish)
            variants.append((most, partial(emit, gpu, reader, job, size)))
        first_that_takes(x.shape[0], variants)

    arguments = {"x": f32("n", packing.k), **weight_arguments(packing, part)}
    return kernel(body, **arguments, y=f32("n", packing.n))


@pytest.mark.parametrize("name", KERNELS)
def test_every_scheme(name: str) -> None:
    check(F16, (72, 256), scheme(name), rows=(4, 9), factory=two_variants)


@pytest.mark.parametrize(
    ("gpu", "name"),
    [(F16, "int4_g32"), (F32, "int8a_g16"), (SMALL, "f16"), (VULKAN, "t4_g32")],
    ids=["f16", "f32", "small", "subgroups"],
)
def test_rows(gpu: Gpu, name: str) -> None:
    check(gpu, (150, 96), scheme(name), bias=True)


@pytest.mark.parametrize(
    ("sizes", "how"),
    [
        ((1, 32), scheme("int4a_g32")),
        ((7, 36), Scheme("int4_row", 4)),  # the last word is half full
        ((13, 40), scheme("int8a_g4")),
        ((33, 12), scheme("int4a_g4")),
        ((5, 7), scheme("f32")),
        ((31, 1), scheme("bf16")),
        ((17, 130), scheme("f16")),
        ((9, 1028), scheme("int8_row")),
    ],
    ids=str,
)
def test_odd_sizes(sizes: tuple[int, int], how: Scheme) -> None:
    for gpu in (F32, SMALL):
        check(gpu, sizes, how, rows=(0, 1, 2, 13, 19), factory=two_variants)


def test_many_lanes_share_a_row() -> None:
    """A small matrix with long rows: teams of 64 and 128 lanes."""
    check(F16, (6, 4096), scheme("int4_g32"), rows=(1, 4), factory=two_variants)
    check(F32, (3, 2048), scheme("f16"), rows=(1, 4), factory=two_variants)


def one_row(gpu: Gpu, packing: GpuPacking, part: int, bias: bool) -> Any:
    """The variant for one row of x alone."""

    def body(x: Any, *buffers: Any) -> None:
        *tensors, y = buffers
        job = LinearWork(x, packing.n, lambda m, n, value: store(y, value, m, n))
        gemv(gpu, WeightReader(gpu, packing, tensors), job, 1)

    arguments = {"x": f32("n", packing.k), **weight_arguments(packing, part)}
    return kernel(body, **arguments, y=f32("n", packing.n))


@pytest.mark.parametrize("name", KERNELS)
def test_many_rows_of_a_weight_in_a_thread(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The variant for large matrices: eight rows (four for floats), some beyond the last one, and
    lanes without a step; words, scales and blocks shared by steps of several units."""
    for bound_of in ("_WORKGROUPS", "_FEWER_WORKGROUPS"):
        monkeypatch.setattr(linear_gemv, bound_of, 1)
    packing = GpuPacking(70, 384, scheme(name), WHOLE)
    shape = linear_gemv.shape_for(F16, WeightReader(F16, packing, []), 70, 1)
    several = not packing.scheme.is_float
    assert (shape.rows, shape.units > 1) == ((8, True) if several else (4, False))
    check(F16, (70, 384), scheme(name), rows=(1, 2), factory=one_row)


def test_tiles_of_every_height() -> None:
    check(F16, (70, 64), scheme("int8_g32"), rows=(20, 50, 65, 130))
    check(F32, (70, 64), scheme("f32"), rows=(20, 50, 130))


def check_wide_tiles(gpu: Gpu) -> None:
    """The tiles of matrix instructions for many rows of W, at a size that can be tried anywhere."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(linear_matrix_tile, "WIDE", 128)
        check(gpu, (200, 64), scheme("int8_g16"), rows=(9, 20, 40, 70))


@pytest.mark.parametrize(("unit", "shared_bytes"), [("wmma", 49152), ("simdgroup", 32768)])
def test_matrix_tiles_fit_and_are_shared_out_evenly(unit: str, shared_bytes: int) -> None:
    edge = UNITS[unit].edge
    for rows in linear_matrix_tile.ROWS:
        for n_out in (2048, linear_matrix_tile.WIDE):
            tile = linear_matrix_tile.tile_for(rows, n_out, edge)
            halves = (tile.rows + tile.columns) * tile.stride
            assert 2 * halves + 4 * edge**2 * tile.subgroups <= shared_bytes
            assert tile.subgroups * 32 == 256
            assert tile.depth % (edge * tile.over_depth) == 0
            assert tile.high * tile.over_rows * edge == tile.rows
            assert tile.wide * tile.over_columns * edge == tile.columns


def test_f16_tiles_hold_values_beyond_their_range() -> None:
    packing, stored, weight = packed(16, 32, scheme("f32"))
    x = normal(0, 20, 32)
    x[:, 3] = 1e5
    inputs, shape = [x, *stored], [((20, 16), "float32")]
    y = run(two_variants, (packing, 0, False), inputs, shape, F16)[0]
    x[:, 3] = 65504
    assert (np.abs(y - twin.linear(x, weight)) <= bound(F16, x, weight)).all()


@pytest.mark.parametrize("name", KERNELS)
def test_unpack_is_what_was_packed(name: str) -> None:
    how = scheme(name)
    weight = normal(3, 130, 128)
    if how.is_float:
        expected = from_storage(to_storage(weight, how.dtype), how.dtype)
    else:
        expected = dequantize(quantize(weight, how))
    for binding in (WHOLE, 2048):
        packing = GpuPacking(130, 128, how, binding)
        arrays = packing.pack(weight)
        assert [(t.shape, t.dtype) for t in packing.tensors] == [
            (a.shape, str(a.dtype)) for a in arrays
        ]
        assert all(a.nbytes <= binding for a in arrays)
        np.testing.assert_array_equal(packing.unpack(arrays), expected)
        if not how.is_float:
            again = packing.pack_quantized(quantize(weight, how))
            for a, b in zip(arrays, again, strict=True):
                np.testing.assert_array_equal(a, b)


def test_parts_are_cut_at_the_same_rows_and_named() -> None:
    packing = GpuPacking(1000, 64, scheme("int4a_g32"), 128 * 32)
    assert [len(r) for r in packing.parts] == [128] * 7 + [104]
    names = [t.suffix for t in packing.tensors]
    assert names[:4] == [".codes.0", ".scales.0", ".zeros.0", ".codes.1"]
    assert {t.shape[0] for t in packing.tensors[3:6]} == {128}


def test_subnormal_halves_are_exact() -> None:
    weight = (np.arange(-40, 40, dtype=np.float32) * np.float32(2.0**-24)).reshape(10, 8)
    packing = GpuPacking(10, 8, scheme("f16"), WHOLE)
    for gpu in (F16, F32):
        y = run(
            embedding.embedding_part,
            (packing, 0),
            [np.arange(10, dtype=np.int32), *packing.pack(weight)],
            [((10, 8), "float32")],
            gpu,
        )[0]
        np.testing.assert_array_equal(y, weight)


class OneCall(Graph):
    """`forward(first, weights, [bias])` of one call of a kernel set's function."""

    def build(self, parameters: list[Any], emit: Any) -> Any:
        with self.builder.function("forward", parameters):
            with self.builder.dataflow():
                output = self.builder.emit_output(emit())
            self.builder.emit_func_output(output)
        return self.finalize()


@cache
def whole(gpu: Gpu, packing: GpuPacking, use: str, bias: bool) -> Any:
    """The compiled graph of a linear layer, or of a lookup, with all its parts."""
    n = tvm.tirx.Var("n", "int64")
    kind = ([n, packing.k], "float32") if use == "matrix" else ([n], "int32")
    first = relax.Var("first", tensor(*kind))
    parts = [relax.Var(f"w{i}", tensor(t.shape, t.dtype)) for i, t in enumerate(packing.tensors)]
    bias_variable = relax.Var("bias", tensor([packing.n]))
    plan = WeightPlan(
        ("w",),
        (packing.n, packing.k),
        use,
        packing.scheme.name,
        packing.layout(),
    )
    weight = Weight(plan, parts)
    graph, kernels = OneCall(), gpu_kernels(gpu)

    def emit() -> Any:
        if use == "table":
            return kernels.emit("embedding", graph, first, weight, out=tensor([n, packing.k]))
        last, out = bias_variable if bias else None, tensor([n, packing.n])
        return kernels.emit("linear", graph, first, weight, last, out=out)

    module = graph.build([first, *parts, *([bias_variable] if bias else [])], emit)
    target = tvm.target.Target({"kind": "webgpu", "max_num_threads": 256}, host={"kind": "llvm"})
    with target:
        executable = relax.build(module, target, tir_pipeline=GPU_PIPELINE)
    path = Path(tempfile.mkdtemp()) / "model.so"
    executable.export_library(str(path))
    return relax.VirtualMachine(tvm.runtime.load_module(str(path)), device())["forward"]


def called(function: Any, *arrays: Any) -> Any:
    return function(*[tvm.runtime.tensor(np.asarray(a), device()) for a in arrays]).numpy()


@pytest.mark.parametrize(("name", "binding"), [("int4a_g32", 8192), ("f32", 65536)])
def test_a_weight_in_parts(name: str, binding: int) -> None:
    gpu = Gpu(binding_bytes=binding)
    packing, stored, weight = packed(301, 96, scheme(name), gpu.binding_bytes)
    assert len(packing.parts) == 2
    bias = normal(5, 301)
    function = whole(gpu, packing, "matrix", True)
    for n in (0, 1, 5, 33):
        x = normal(n, n, 96)
        y = called(function, x, *stored, bias)
        error = np.abs(y - twin.linear(x, weight, bias))
        assert (error <= bound(gpu, x, weight)).all()
    ids = np.array([0, 300, 127, 128, 64, 63, 299, -5, 1000], np.int32)
    out = called(whole(gpu, packing, "table", False), ids, *stored)
    np.testing.assert_array_equal(out, twin.embedding(np.clip(ids, 0, 300), weight))


@pytest.mark.parametrize("name", KERNELS)
def test_embedding(name: str) -> None:
    packing, stored, weight = packed(50, 128, scheme(name))
    for ids in ([], [3], [49, 0, 7, 7, -1, 50]):
        tokens = np.array(ids, np.int32)
        shape = [((len(ids), 128), "float32")]
        y = run(embedding.embedding_part, (packing, 0), [tokens, *stored], shape, SMALL)[0]
        np.testing.assert_array_equal(y, twin.embedding(np.clip(tokens, 0, 49), weight))
