"""Latent attention's kernels on the GPU against the twins: ragged mixed steps, the rest poisoned.

Bounds are absolute, on outputs of order one: 1e-5 for either page type, as the twin reads the same
pages.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mlcc.device.reference import mla as twin
from mlcc.errors import UnsupportedError
from mlcc_compiler.kernels.gpu import mla
from mlcc_compiler.kernels.gpu.attention.latent import attend_latent_ranges, attend_latents
from mlcc_compiler.kernels.gpu.attention.latent_tile import LatentPlan
from mlcc_compiler.kernels.gpu.attention.plan import range_items
from mlcc_compiler.kernels.gpu.device import Gpu
from tests.compiler.kernels.attention_cases import MIXED, OTHERS
from tests.compiler.kernels.gpu_kernels import F16, F32, SMALL, call, normal, run
from tests.compiler.kernels.mla_cases import Case, Inputs, alone, inputs

pytestmark = pytest.mark.usefixtures("vulkan")


def attend(given: Inputs, gpu: Gpu = F16) -> Any:
    """Both kernels, one after the other."""
    case = given.case
    items = int(range_items(given.entries, given.sequences, case.page))
    scratch = [((items, case.heads, n), "float32") for n in (case.rank, 2)]
    parts = run(attend_latent_ranges, (case.layout,), given.tensors, scratch, gpu)
    arguments, out = [*given.tensors, *parts, given.sequences], [(given.out, "float32")]
    return run(attend_latents, (case.layout,), arguments, out, gpu)[0]


def check(case: Case, sequences: Any, gpu: Gpu = F16) -> None:
    given = inputs(case, sequences, padding=2)
    expected = given.expected
    assert np.isfinite(expected).all()
    np.testing.assert_allclose(attend(given, gpu), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("gpu", [F16, F32, SMALL], ids=str)
def test_mixed_batch(gpu: Gpu) -> None:
    check(Case(dtype="float16" if gpu.f16 else "float32"), MIXED, gpu)


@pytest.mark.parametrize("case", [Case(rank=512, rope=64), Case(3, 20, 6, 4), Case(40, 32, 2, 1)])
def test_sizes(case: Case) -> None:
    """DeepSeek's own, odd ones, and heads of several tiles."""
    check(case, MIXED)


def test_lengths_round_every_boundary() -> None:
    """Of pages (16), blocks of keys (32), ranges (128)."""
    lengths = (1, 2, 15, 16, 17, 31, 32, 33, 127, 128, 129, 257, 1024)
    check(Case(), [(1, n) for n in lengths])
    check(Case(), [(n, n + more) for n in (2, 3, 4, 5, 17) for more in (0, 100)])


def test_a_list_behind_those_of_other_groups() -> None:
    check(Case(2, 16, 8, before=OTHERS), MIXED)


def test_a_step_may_be_smaller_than_its_sizes() -> None:
    """Where n = b the prefill does not run, and other rows get zeros; else it clears them."""
    for sequences, padding, more in (([(1, 40), (1, 300), (1, 16)], 5, 5), (MIXED, 50, 4)):
        given = inputs(Case(), sequences, padding=padding)
        given.sequences, given.entries = given.sequences + more, given.entries + 50
        np.testing.assert_allclose(attend(given), given.expected, rtol=0, atol=1e-5)


def test_a_row_does_not_depend_on_its_neighbours() -> None:
    given, first = inputs(Case(), sequences := ((1, 500), (30, 200), (1, 33), (40, 40))), 0
    share_input = attend(given)
    for s, (queries, _) in enumerate(sequences):
        np.testing.assert_array_equal(attend(alone(given, s)), share_input[first : first + queries])
        first += queries


def test_tiles_stay_within_the_row_s_limits() -> None:
    """DeepSeek's widths; and a latent that no workgroup holds is refused by name."""
    shape = Case(rank=512, rope=64).shape
    for threads in (128, 256):
        plan = LatentPlan.of(Gpu(threads=threads), shape, 32)
        assert plan.threads <= threads
        assert plan.shared_bytes <= 16384
        assert plan.heads == 16
    with pytest.raises(UnsupportedError, match=r"latents of 512 .* up to 256; use --target"):
        LatentPlan.of(SMALL, shape, 32)


@pytest.mark.parametrize("case", [Case(4), Case(rank=512, rope=64, nope=128, value=128)])
def test_products_with_a_head_s_weights(case: Case) -> None:
    shape = case.shape
    for count in (1, 7):
        q = normal(1, count, shape.heads, case.nope + case.rope)
        x = normal(2, count, shape.heads, shape.rank)
        table = normal(4, count, shape.rope)
        weight = normal(3, *shape.weight, scale=case.nope**-0.5)
        out = [((count, shape.heads, shape.width), "float32")]
        (found,) = run(mla.latent_query, (shape,), [q, weight, table], out)
        np.testing.assert_allclose(found, twin.latent_query(q, weight, table), rtol=0, atol=2e-5)

        weight = normal(5, *shape.weight, scale=case.rank**-0.5)
        expected = twin.latent_value(x, weight, shape.value)
        (found,) = run(mla.latent_value, (shape,), [x, weight], [(expected.shape, "float32")])
        np.testing.assert_allclose(found, expected, rtol=0, atol=2e-5)


def test_append() -> None:
    """Normalised and turned, where the slots say; what float16 does not hold is its largest."""
    case = Case(rank=40, rope=22, page=8, dtype="float16")
    pages, x = normal(1, 9, 8, 62).astype("float16"), normal(2, 20, 62)
    norm, table = normal(3, 40), normal(4, 20, 22)
    x[3, 45] = 1e6
    slots = np.random.default_rng(5).permutation(72)[:20].astype(np.int32)
    slots[[2, 11]] = -1
    *_, out = call(mla.append_latent, (case.layout,), [x, norm, table, slots, pages])
    held = np.clip(twin.latent_key(x, norm, table, 1e-6), -65504, 65504)
    expected = twin.append_latent(held, slots, pages.copy())
    np.testing.assert_allclose(out, expected, rtol=2e-3, atol=1e-6)
    rest = np.setdiff1d(np.arange(72), slots)
    np.testing.assert_array_equal(out.reshape(-1, 62)[rest], pages.reshape(-1, 62)[rest])
