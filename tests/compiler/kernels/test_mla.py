"""Latent attention's kernels on the CPU against the twins: ragged mixed steps, the rest poisoned.

Bounds are absolute, on outputs of order one: 1e-5 for either page type, as the twin reads the same
pages.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from mlcc.device.reference import mla as twin
from mlcc_compiler.kernels.cpu.attention import mla_cache
from mlcc_compiler.kernels.cpu.attention.latent import attend_latents
from tests.compiler.kernels.attention_cases import MIXED, OTHERS
from tests.compiler.kernels.cpu_kernels import BEST, CPUS, Cpu, call, normal, run
from tests.compiler.kernels.mla_cases import Case, Inputs, alone, inputs


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
    """Of pages (16), blocks (64), ranges (128)."""
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
