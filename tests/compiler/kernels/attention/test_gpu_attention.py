"""The GPU's paged attention against the twin: ragged mixed batches on poisoned pages.

Bounds are absolute, on outputs of order one: 1e-5 for either page type, as the twin reads the same
pages; 4e-3 for matrix instructions, which round queries, weights and values to float16: scores of
up to 4 are off by 2 ** -10 of that, and so are weights and outputs.
"""

from __future__ import annotations

import itertools
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mlcc_compiler.ir._tvm import relax, tvm
from mlcc_compiler.ir.graph import Graph, tensor
from mlcc_compiler.kernels.gpu.attention import attention, one_launch
from mlcc_compiler.kernels.gpu.attention.decode import attend_ranges
from mlcc_compiler.kernels.gpu.attention.matrix_prefill import MatrixPlan
from mlcc_compiler.kernels.gpu.attention.plan import RangePlan, TilePlan, range_items
from mlcc_compiler.kernels.gpu.device import Gpu
from mlcc_compiler.kernels.gpu.kernel_set import gpu_kernels
from mlcc_compiler.kernels.tir_pipeline import GPU_PIPELINE
from mlcc_compiler.passes.variables import size_variable, step_variable
from mlcc_targets import get_target
from tests.compiler.kernels.cases.attention import MIXED, OTHERS, Case, Inputs, alone, inputs
from tests.compiler.kernels.cases.gpu_kernels import (
    F16,
    GPUS,
    SMALL,
    VULKAN,
    call,
    device,
    run,
)
from tests.compiler.kernels.cases.step import OTHER_BOUNDS

pytestmark = pytest.mark.usefixtures("vulkan")


def attend(given: Inputs, gpu: Gpu = F16) -> Any:
    """The attention of both kernels, partial and combining, or of the one that is both."""
    case = given.case
    items = int(range_items(given.entries, given.sequences, case.page))
    scratch = [((items, case.heads, n), "float32") for n in (case.dim, 2)]
    shape, layout = case.arguments
    if attention.takes_one_launch(gpu, shape):
        made = [np.full(size, np.nan, dtype) for size, dtype in scratch]
        counters = np.zeros(one_launch.counters_of(gpu, shape, layout), np.int32)
        tensors = [*given.tensors, counters, *given.sinks, given.sequences, *made]
        numbers = shape, layout, attention._prefill
        after = call(one_launch.attend_at_once, numbers, [*tensors, np.full_like(given.q, 77)], gpu)
        assert not after[len(given.tensors)].any()
        return after[-1]
    parts = run(attend_ranges, case.arguments, given.tensors, scratch, gpu)
    arguments, out = (
        [*given.tensors, *parts, *given.sinks, given.sequences],
        [(given.q.shape, "float32")],
    )
    return run(attention.attend, case.arguments, arguments, out, gpu)[0]


def check(case: Case, sequences: Any, gpu: Gpu = F16, seed: int = 0, padding: int = 2) -> None:
    given = inputs(case, sequences, seed, padding)
    expected = given.expected
    assert np.isfinite(expected).all()
    atol = 4e-3 if gpu.matrix_unit and case.dtype != "float32" else 1e-5
    np.testing.assert_allclose(attend(given, gpu), expected, rtol=0, atol=atol)


@pytest.mark.parametrize("gpu", [*GPUS, VULKAN], ids=str)
def test_mixed_batch(gpu: Gpu) -> None:
    check(Case(dtype="float16" if gpu.f16 else "float32"), MIXED, gpu)


@pytest.mark.parametrize("heads, kv_heads", [(2, 2), (14, 2), (16, 1)])
def test_groups(heads: int, kv_heads: int) -> None:
    check(Case(heads=heads, kv_heads=kv_heads, dim=32, dtype="float16"), MIXED)


@pytest.mark.parametrize("dim", [8, 80, 256])
def test_head_dims(dim: int) -> None:
    check(Case(heads=4, kv_heads=2, dim=dim), MIXED)


@pytest.mark.parametrize("page", [1, 48, 128])
def test_page_sizes(page: int) -> None:
    check(Case(heads=4, kv_heads=2, dim=32, page=page), MIXED)


@pytest.mark.parametrize("window", [1, 100])
def test_windows_leave_freed_pages_alone(window: int) -> None:
    check(Case(window=window), (*MIXED, (1, 1500), (30, 400)))


@pytest.mark.parametrize("gpu", [F16, SMALL], ids=["f16", "small"])
def test_sinks(gpu: Gpu) -> None:
    """Sinks, for merged ranges and for tiles; one is far above all scores."""
    check(Case(sinks=True), MIXED, gpu)
    check(Case(heads=8, kv_heads=2, sinks=True, window=33, dtype="float16"), MIXED, gpu)


@pytest.mark.parametrize("window", [None, 20])
def test_both_ways(window: int | None) -> None:
    whole = ((1, 1), (16, 16), (5, 5), (130, 130), (3, 3))
    check(Case(window=window, causal=False), whole)
    check(Case(4, 4, dim=32, window=window, causal=False, dtype="float16"), whole)


@pytest.mark.parametrize("window", [None, 60])
def test_images_both_ways(window: int | None) -> None:
    check(Case(window=window, images=True), (*MIXED, (150, 400)))


def test_windows_of_an_image() -> None:
    check(Case(images=True, windows=True), (*MIXED, (150, 400)))


def test_softcap_and_window() -> None:
    check(Case(softcap=5.0, window=33, dtype="float16"), MIXED)


def test_lengths_round_every_boundary() -> None:
    """Lengths around the boundaries of pages (16), tiles of tokens (21) and of keys (32), ranges
    (128)."""
    lengths = (1, 2, 15, 16, 17, 31, 32, 33, 127, 128, 129, 257, 1024, 4097)
    check(Case(), [(1, n) for n in lengths], padding=0)
    tokens = (1, 2, 20, 21, 22, 32, 33, 42, 43, 65)
    check(Case(), [(n, n + more) for n in tokens for more in (0, 100)])


def test_random_batches() -> None:
    rng = np.random.default_rng(3)
    for seed in range(20):
        count = int(rng.integers(1, 9))
        queries = 1 + rng.integers(0, 50, count) * (rng.random(count) < 0.5)
        sequences = [(int(n), int(n + rng.integers(0, 200))) for n in queries]
        check(Case(window=None if seed % 2 else 60), sequences, seed=seed)


@pytest.mark.parametrize("window", [None, 100])
def test_lists_behind_those_of_other_groups(window: int | None) -> None:
    """The columns and the list are the group's own, wherever the tables' bounds put them."""
    check(Case(2, 2, dim=8, window=window, before=OTHERS), MIXED)
    case = Case(2, 2, dim=8, window=window, before=OTHERS[:1], bounds=OTHER_BOUNDS)
    check(case, MIXED)


def test_a_decode_step_may_be_smaller_than_its_sizes() -> None:
    """Sizes as rounded up by CUDA graphs: n = b, so the prefill does not run, and other rows get
    zeros."""
    for case in (Case(), Case(window=100)):
        given = inputs(case, [(1, 40), (1, 300), (1, 16)], padding=5)
        expected = given.expected
        for entries in (0, 1, 50):
            given.sequences, given.entries = 8, given.entries + entries
            np.testing.assert_allclose(attend(given), expected, rtol=0, atol=1e-5)
        assert (attend(given)[-5:] == 0).all()


def test_a_mixed_step_may_be_smaller_than_its_sizes() -> None:
    given = inputs(Case(), MIXED, padding=100)
    given.sequences, given.entries = given.sequences + 4, given.entries + 50
    np.testing.assert_allclose(attend(given), given.expected, rtol=0, atol=1e-5)


def test_no_sequences() -> None:
    given = inputs(Case(), (), padding=3)
    assert (attend(given) == 0).all()
    given.sequences, given.entries = 2, 40
    assert (attend(given) == 0).all()
    assert attend(inputs(Case(), ())).size == 0


def test_a_row_does_not_depend_on_its_neighbours() -> None:
    """Bit for bit: how a sequence is cut into ranges and tiles follows from its own lengths."""
    sequences = ((1, 500), (30, 200), (1, 33), (100, 100))
    for case in (Case(), Case(window=100)):
        given = inputs(case, sequences)
        share_input, first = attend(given), 0
        for s, (queries, _) in enumerate(sequences):
            by_itself = attend(alone(given, s))
            np.testing.assert_array_equal(by_itself, share_input[first : first + queries])
            first += queries


def test_large_scores_do_not_overflow() -> None:
    given = inputs(Case(), ((1, 300), (70, 300)))
    given.q *= 1000
    np.testing.assert_allclose(attend(given), given.expected, rtol=0, atol=1e-2)


def test_workgroup_memory_stays_below_the_row_s() -> None:
    """For every shape of a model, with float32 pages or float16; a group's keys are read once."""
    for shared_bytes in (16384, VULKAN.shared_bytes, 49152):
        gpu = Gpu(shared_bytes=shared_bytes)
        for group, dim in itertools.product((1, 2, 3, 4, 7, 8), (64, 80, 96, 128, 256)):
            shape = Case(heads=group, kv_heads=1, dim=dim).shape
            plan = RangePlan.of(gpu, shape, 16)
            assert plan.shared_bytes <= shared_bytes
            assert plan.heads == group or dim == 256
            assert TilePlan.of(gpu, shape).shared_bytes <= shared_bytes


@pytest.mark.parametrize("target", ["cuda", "metal"])
def test_tiles_of_matrices_fit_and_are_shared_out_evenly(target: str) -> None:
    gpu = Gpu.of(get_target(target))
    for group, dim in itertools.product((1, 2, 3, 4, 7, 8), (64, 80, 96, 112, 128, 192, 256)):
        shape = Case(heads=group, kv_heads=1, dim=dim).shape
        plan = MatrixPlan.of(gpu, shape)
        assert plan is not None and plan.shared_bytes <= gpu.shared_bytes
        edges = plan.edge * plan.over_rows, plan.edge * plan.over_columns
        assert (plan.high * edges[0], plan.wide * edges[1]) == (plan.rows, plan.keys)
        assert plan.wide_dim * edges[1] == plan.dim >= dim
        assert plan.over_rows * plan.over_columns * gpu.subgroup == plan.threads
        assert plan.threads % plan.rows == 0 and plan.keys % (plan.threads // plan.rows) == 0
    assert MatrixPlan.of(gpu, Case(heads=8, kv_heads=8, dim=512).shape) is None


@pytest.mark.parametrize(
    ("target", "dim", "word"),
    [
        ("cuda", 64, "mma.sync.aligned.m16n8k16"),
        ("cuda", 192, "mma_sync"),  # of wmma: beyond shared memory's room for mma's tile
        ("metal", 64, "simdgroup_multiply_accumulate"),
    ],
)
def test_matrix_instructions_are_for_pages_of_16_bits_or_fewer(
    target: str, dim: int, word: str
) -> None:
    """Pages of float32 are read as they are."""
    gpu = Gpu.of(get_target(target))
    for dtype, used in (("float16", True), ("int8x4", True), ("float32", False)):
        case = Case(heads=8, kv_heads=2, dim=dim, dtype=dtype)
        assert (word in attention.attend(gpu, *case.arguments).script()) == used


def test_compiles_for_metal_with_subgroups_and_aligned_loads() -> None:
    case = Case(heads=32, kv_heads=8, dim=128, window=4096, softcap=50.0, dtype="float16")
    target = tvm.target.Target({"kind": "metal", "thread_warp_size": 32}, host={"kind": "llvm"})
    texts = []
    for factory in (attend_ranges, attention.attend):
        kernel = factory(Gpu(shared_bytes=32768, subgroup=32), *case.arguments)
        functions = {"kernel": kernel.with_attr("global_symbol", "kernel")}
        with target:
            module = tvm.compile(tvm.IRModule(functions), target, tir_pipeline=GPU_PIPELINE)
        texts.append(module.mod.imports[0].inspect_source())
    assert all("simd_shuffle_down" in text and "threadgroup_barrier" in text for text in texts)
    assert "device half4*)" in texts[0]


def module(case: Case) -> Any:
    """A graph that is nothing but attention."""
    graph, (shape, layout) = Graph(), case.arguments
    n, b, p, pool = (size_variable(name) for name in ("n", "b", "p", "num_pages"))
    inputs = [
        relax.Var("q", tensor([n, case.heads, case.dim])),
        relax.Var("pages", tensor([pool, *layout.tensors[0].shape], layout.dtype)),
        step_variable(layout.step),
    ]
    sizes = relax.Var("sizes", relax.ShapeType([b, p]))
    with graph.builder.function("forward", [*inputs, sizes]):
        with graph.builder.dataflow():
            out = gpu_kernels(F16).emit("attention", graph, inputs, (b, p), shape, layout)
            out = graph.builder.emit_output(out)
        graph.builder.emit_func_output(out)
    return graph.finalize()


def test_emitted_into_a_graph() -> None:
    """The scratch tensors' sizes follow from the shape argument, and the whole runs in TVM's VM."""
    case = Case(heads=4, kv_heads=2, dim=32)
    target = tvm.target.Target({"kind": "webgpu", "max_num_threads": 256}, host={"kind": "llvm"})
    with target:
        executable = relax.build(module(case), target, tir_pipeline=GPU_PIPELINE)
    path = Path(tempfile.mkdtemp()) / "attention.so"
    executable.export_library(str(path))
    machine = relax.VirtualMachine(tvm.runtime.load_module(str(path)), device())
    for sequences in (MIXED, [(1, 130), (1, 5)]):
        given = inputs(case, sequences)
        sizes = tvm.runtime.ShapeTuple((given.sequences, given.entries))
        arguments = (tvm.runtime.tensor(a, device()) for a in given.tensors)
        out = machine["forward"](*arguments, sizes).numpy()
        np.testing.assert_allclose(out, given.expected, rtol=0, atol=1e-5)
