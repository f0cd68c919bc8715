"""Latent attention's kernels against the twins: ragged mixed steps, the rest poisoned.

Bounds are absolute, on outputs of order one: 1e-5 for either page type, as the twin reads the same
pages; 4e-3 for prompts by matrix instructions, which round queries and weights to float16
(`test_gpu_attention.py`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from mlcc.device.reference import mla as twin
from mlcc.errors import UnsupportedError
from mlcc_compiler.kernels.cpu.attention import mla_cache
from mlcc_compiler.kernels.cpu.attention.latent import attend_latents
from mlcc_compiler.kernels.gpu.attention import latent, mma_latent
from mlcc_compiler.kernels.gpu.attention import mla_cache as gpu_mla_cache
from mlcc_compiler.kernels.gpu.attention.latent import attend_latent_ranges
from mlcc_compiler.kernels.gpu.attention.latent import attend_latents as gpu_attend_latents
from mlcc_compiler.kernels.gpu.attention.latent_tile import LatentPlan
from mlcc_compiler.kernels.gpu.attention.plan import range_items
from mlcc_compiler.kernels.gpu.device import Gpu
from tests.compiler.kernels.cases.attention import MIXED, OTHERS
from tests.compiler.kernels.cases.cpu_kernels import BEST, CPUS, Cpu, call, normal, run
from tests.compiler.kernels.cases.gpu_kernels import F16, F32, SMALL, VULKAN, on_vulkan
from tests.compiler.kernels.cases.gpu_kernels import call as gpu_call
from tests.compiler.kernels.cases.gpu_kernels import normal as gpu_normal
from tests.compiler.kernels.cases.gpu_kernels import run as gpu_run
from tests.compiler.kernels.cases.mla import Case, Inputs, alone, inputs


def attend(given: Inputs, cpu: Cpu = BEST) -> Any:
    arguments, out = [*given.tensors, given.sequences], [(given.out, "float32")]
    return run(attend_latents, (given.case.layout,), arguments, out, cpu)[0]


def check(case: Case, sequences: Any, cpu: Cpu = BEST) -> None:
    given = inputs(case, sequences, padding=2)
    expected = given.expected
    assert np.isfinite(expected).all()
    np.testing.assert_allclose(attend(given, cpu), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("cpu", CPUS, ids=lambda c: c.name)
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_mixed_batch(cpu: Cpu, dtype: str) -> None:
    check(Case(dtype=dtype), MIXED, cpu)


@pytest.mark.parametrize("case", [Case(rank=512, rope=64), Case(3, 24, 8, 4), Case(1, 40, 2, 1)])
def test_sizes(case: Case) -> None:
    """DeepSeek's own, and vectors that end at odd places."""
    check(case, MIXED)


def test_lengths_round_every_boundary() -> None:
    """Lengths around the boundaries of pages (16), blocks (64) and ranges (128)."""
    lengths = (1, 2, 15, 16, 17, 63, 64, 65, 127, 128, 129, 257, 2049)
    check(Case(), [(1, n) for n in lengths])
    check(Case(), [(n, n + more) for n in (2, 3, 4, 5, 17) for more in (0, 100)])


def test_a_list_behind_those_of_other_groups() -> None:
    check(Case(2, 16, 8, before=OTHERS), MIXED)


def test_a_row_does_not_depend_on_its_neighbours() -> None:
    given, first = inputs(Case(), sequences := ((1, 500), (30, 200), (1, 33), (40, 40))), 0
    share_input = attend(given)
    for s, (queries, _) in enumerate(sequences):
        np.testing.assert_array_equal(attend(alone(given, s)), share_input[first : first + queries])
        first += queries


DEEPSEEK = Case(rank=512, rope=64, nope=128, value=128)
SIZES = [(Case(4), cpu) for cpu in CPUS] + [
    (Case(2, 40, 2, nope=16, value=12), BEST),
    (DEEPSEEK, BEST),
]


@pytest.mark.parametrize(("case", "cpu"), SIZES)
def test_products_with_a_head_s_weights(case: Case, cpu: Cpu) -> None:
    shape = case.shape
    for count in (1, 7, 35):
        q = normal(1, count, shape.heads, case.nope + case.rope)
        x = normal(2, count, shape.heads, shape.rank)
        table = normal(4, count, shape.rope)
        weight = normal(3, *shape.weight, scale=case.nope**-0.5)
        out = [((count, shape.heads, shape.width), "float32")]
        (found,) = run(mla_cache.latent_query, (shape,), [q, weight, table], out, cpu)
        np.testing.assert_allclose(found, twin.latent_query(q, weight, table), rtol=0, atol=2e-5)

        weight = normal(5, *shape.weight, scale=case.rank**-0.5)
        expected = twin.latent_value(x, weight, shape.value)
        out = [(expected.shape, "float32")]
        (found,) = run(mla_cache.latent_value, (shape,), [x, weight], out, cpu)
        np.testing.assert_allclose(found, expected, rtol=0, atol=2e-5)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("case", [Case(rank=512, rope=64), Case(rank=40, rope=2, page=3)])
def test_append(case: Case, dtype: str) -> None:
    """Normalised and turned, where the slots say, and nowhere else."""
    layout = replace(case, dtype=dtype).layout
    width, page = case.shape.width, case.page
    pages, x = normal(1, 9, page, width).astype(dtype), normal(2, 20, width)
    norm, table = normal(3, case.rank), normal(4, 20, case.rope)
    slots = np.random.default_rng(5).permutation(9 * page)[:20].astype(np.int32)
    slots[[2, 11]] = -1
    *_, out = call(mla_cache.append_latent, (layout,), [x, norm, table, slots, pages])
    expected = twin.append_latent(twin.latent_key(x, norm, table, 1e-6), slots, pages.copy())
    np.testing.assert_allclose(out, expected, rtol=2e-3 if dtype == "float16" else 1e-5, atol=1e-6)
    rest = np.setdiff1d(np.arange(9 * page), slots)
    np.testing.assert_array_equal(out.reshape(-1, width)[rest], pages.reshape(-1, width)[rest])


def gpu_attend(given: Inputs, gpu: Gpu = F16) -> Any:
    """The attention of both kernels, partial and combining; by one where the device has that."""
    case = given.case
    items = int(range_items(given.entries, given.sequences, case.page))
    if latent.takes_one_launch(gpu, case.layout):
        counters = np.zeros(latent.counters_of(gpu, case.layout), np.int32)
        made = [np.full((items, case.heads, n), np.nan, np.float32) for n in (case.rank, 2)]
        given_all = [*given.tensors, counters, given.sequences, *made]
        given_all.append(np.full(given.out, np.nan, np.float32))
        after = gpu_call(latent.attend_latents_at_once, (case.layout,), given_all, gpu)
        assert not after[len(given.tensors)].any()
        return after[-1]
    scratch = [((items, case.heads, n), "float32") for n in (case.rank, 2)]
    parts = gpu_run(attend_latent_ranges, (case.layout,), given.tensors, scratch, gpu)
    arguments, out = [*given.tensors, *parts, given.sequences], [(given.out, "float32")]
    return gpu_run(gpu_attend_latents, (case.layout,), arguments, out, gpu)[0]


def gpu_check(case: Case, sequences: Any, gpu: Gpu = F16) -> None:
    """With rows behind the step's tokens, which are zeros."""
    given = inputs(case, sequences, padding=2)
    expected, found = given.expected, gpu_attend(given, gpu)
    assert np.isfinite(expected).all() and not found[-2:].any()
    by_mma = mma_latent.plan_of(gpu, case.layout) is not None
    counts = [queries for queries, _ in sequences]
    of_prompt = np.repeat(np.array(counts) > 1, counts)
    for rows, atol in ((of_prompt, 4e-3 if by_mma else 1e-5), (~of_prompt, 1e-5)):
        shown = np.flatnonzero(rows)
        np.testing.assert_allclose(found[shown], expected[shown], rtol=0, atol=atol)


@on_vulkan
@pytest.mark.parametrize("gpu", [F16, F32, SMALL, VULKAN], ids=str)
def test_gpu_mixed_batch(gpu: Gpu) -> None:
    gpu_check(Case(dtype="float16" if gpu.f16 else "float32"), MIXED, gpu)


@on_vulkan
@pytest.mark.parametrize("case", [Case(rank=512, rope=64), Case(3, 20, 6, 4), Case(40, 32, 2, 1)])
def test_gpu_sizes(case: Case) -> None:
    """DeepSeek's own, odd ones, and heads of several tiles."""
    gpu_check(case, MIXED)


@on_vulkan
def test_gpu_lengths_round_every_boundary() -> None:
    """Lengths around the boundaries of pages (16), blocks of keys (32), ranges (128)."""
    lengths = (1, 2, 15, 16, 17, 31, 32, 33, 127, 128, 129, 257, 1024)
    gpu_check(Case(), [(1, n) for n in lengths])
    gpu_check(Case(), [(n, n + more) for n in (2, 3, 4, 5, 17) for more in (0, 100)])


@on_vulkan
def test_gpu_a_list_behind_those_of_other_groups() -> None:
    gpu_check(Case(2, 16, 8, before=OTHERS), MIXED)


@on_vulkan
def test_gpu_a_step_may_be_smaller_than_its_sizes() -> None:
    """If n = b the prefill does not run, and other rows get zeros; else it clears them."""
    for sequences, padding, more in (([(1, 40), (1, 300), (1, 16)], 5, 5), (MIXED, 50, 4)):
        given = inputs(Case(), sequences, padding=padding)
        given.sequences, given.entries = given.sequences + more, given.entries + 50
        np.testing.assert_allclose(gpu_attend(given), given.expected, rtol=0, atol=1e-5)


@on_vulkan
def test_gpu_a_row_does_not_depend_on_its_neighbours() -> None:
    given, first = inputs(Case(), sequences := ((1, 500), (30, 200), (1, 33), (40, 40))), 0
    share_input = gpu_attend(given)
    for s, (queries, _) in enumerate(sequences):
        np.testing.assert_array_equal(
            gpu_attend(alone(given, s)), share_input[first : first + queries]
        )
        first += queries


@on_vulkan
def test_gpu_tiles_stay_within_the_row_s_limits() -> None:
    """DeepSeek's widths; and a latent that no workgroup holds is refused by name."""
    shape = Case(rank=512, rope=64).shape
    for threads in (128, 256):
        plan = LatentPlan.of(Gpu(threads=threads), shape, 32)
        assert plan.threads <= threads
        assert plan.shared_bytes <= 16384
        assert plan.heads == 16
    with pytest.raises(UnsupportedError, match=r"latents of 512 .* up to 256; use --target"):
        LatentPlan.of(SMALL, shape, 32)


@on_vulkan
@pytest.mark.parametrize("case", [Case(4), Case(rank=512, rope=64, nope=128, value=128)])
def test_gpu_products_with_a_head_s_weights(case: Case) -> None:
    shape = case.shape
    for count in (1, 7):
        q = gpu_normal(1, count, shape.heads, case.nope + case.rope)
        x = gpu_normal(2, count, shape.heads, shape.rank)
        table = gpu_normal(4, count, shape.rope)
        weight = gpu_normal(3, *shape.weight, scale=case.nope**-0.5)
        out = [((count, shape.heads, shape.width), "float32")]
        (found,) = gpu_run(gpu_mla_cache.latent_query, (shape,), [q, weight, table], out)
        np.testing.assert_allclose(found, twin.latent_query(q, weight, table), rtol=0, atol=2e-5)

        weight = gpu_normal(5, *shape.weight, scale=case.rank**-0.5)
        expected = twin.latent_value(x, weight, shape.value)
        (found,) = gpu_run(
            gpu_mla_cache.latent_value, (shape,), [x, weight], [(expected.shape, "float32")]
        )
        np.testing.assert_allclose(found, expected, rtol=0, atol=2e-5)


@on_vulkan
def test_gpu_append() -> None:
    """Latents are normalised, rotated and written to their slots; numbers beyond float16 become its
    largest."""
    case = Case(rank=40, rope=22, page=8, dtype="float16")
    pages, x = gpu_normal(1, 9, 8, 62).astype("float16"), gpu_normal(2, 20, 62)
    norm, table = gpu_normal(3, 40), gpu_normal(4, 20, 22)
    x[3, 45] = 1e6
    slots = np.random.default_rng(5).permutation(72)[:20].astype(np.int32)
    slots[[2, 11]] = -1
    *_, out = gpu_call(gpu_mla_cache.append_latent, (case.layout,), [x, norm, table, slots, pages])
    held = np.clip(twin.latent_key(x, norm, table, 1e-6), -65504, 65504)
    expected = twin.append_latent(held, slots, pages.copy())
    np.testing.assert_allclose(out, expected, rtol=2e-3, atol=1e-6)
    rest = np.setdiff1d(np.arange(72), slots)
    np.testing.assert_array_equal(out.reshape(-1, 62)[rest], pages.reshape(-1, 62)[rest])
