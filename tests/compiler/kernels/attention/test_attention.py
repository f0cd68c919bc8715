"""Paged attention against the twin: ragged mixed steps on shuffled pages, the rest poisoned.

Every page entry that a query may not read is NaN, so one read too many spoils the answer. Bounds
are absolute, on outputs of order one: 1e-5 for either page type, as the twin reads the same pages.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mlcc_compiler.ir.caches import CacheTensor
from mlcc_compiler.kernels.cpu.attention import attention
from mlcc_compiler.kernels.cpu.elementwise import activation, norm, rope
from mlcc_compiler.kernels.cpu.kv_cache import append
from mlcc_compiler.kernels.cpu.sampling import sample
from tests.compiler.kernels.cases.attention import (
    MIXED,
    OTHERS,
    Case,
    Inputs,
    alone,
    in_chunks,
    in_pieces,
    inputs,
)
from tests.compiler.kernels.cases.cpu_kernels import BEST, CPUS, NEON, SSE2, Cpu, assembly, run
from tests.compiler.kernels.cases.step import BOUNDS, LAYOUTS, OTHER_BOUNDS


def attend(given: Inputs, cpu: Cpu = BEST) -> Any:
    arguments, out = [*given.columns, *given.sinks, given.sequences], [(given.q.shape, "float32")]
    return run(attention.paged_attention, given.case.arguments, arguments, out, cpu)[0]


def check(case: Case, sequences: Any, cpu: Cpu = BEST, seed: int = 0) -> None:
    given = inputs(case, sequences, seed, padding=2)
    expected = given.expected
    assert np.isfinite(expected).all()
    np.testing.assert_allclose(attend(given, cpu), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("cpu", CPUS, ids=lambda c: c.name)
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_mixed_batch(cpu: Cpu, dtype: str) -> None:
    check(Case(dtype=dtype), MIXED, cpu)


@pytest.mark.parametrize("group", [1, 3, 4, 8])
def test_groups(group: int) -> None:
    check(Case(heads=2 * group, kv_heads=2, dim=32), MIXED)


@pytest.mark.parametrize("dim", [8, 40, 80, 96, 112, 128, 256])
def test_head_dims(dim: int) -> None:
    check(Case(heads=4, kv_heads=2, dim=dim), MIXED)


@pytest.mark.parametrize("page", [1, 4, 32, 128])
def test_page_sizes(page: int) -> None:
    check(Case(heads=4, kv_heads=2, dim=32, page=page), MIXED)


@pytest.mark.parametrize("window", [1, 20, 100, 1000])
def test_windows_leave_freed_pages_alone(window: int) -> None:
    for cpu in CPUS[: 2 if window == 100 else 1]:
        check(Case(window=window), (*MIXED, (1, 1500), (30, 400)), cpu)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_softcap(dtype: str) -> None:
    check(Case(softcap=5.0, dtype=dtype), MIXED)
    check(Case(softcap=5.0, window=33, dtype=dtype), MIXED)


@pytest.mark.parametrize("cpu", CPUS, ids=lambda c: c.name)
def test_sinks(cpu: Cpu) -> None:
    """Scores with sinks, for sequences in one range, in several, and in tiles; one sink is far
    above all scores."""
    check(Case(sinks=True), MIXED, cpu)
    if cpu in (BEST, SSE2):  # test_kv_int8 has windows on each
        check(Case(sinks=True, window=33, dtype="float16"), MIXED, cpu)


WHOLE = ((1, 1), (16, 16), (5, 5), (130, 130), (64, 64), (3, 3), (333, 333))
"""Sequences of which a step has all tokens, as encoders see them."""


@pytest.mark.parametrize("window", [None, 1, 5, 40, 1000])
def test_both_ways(window: int | None) -> None:
    for cpu in CPUS[: 2 if window == 40 else 1]:
        check(Case(window=window, causal=False), WHOLE, cpu)
    if window in (None, 40):
        case = Case(heads=4, kv_heads=4, dim=32, window=window, causal=False, dtype="float16")
        check(case, WHOLE)


@pytest.mark.parametrize("window", [None, 60])
def test_images_both_ways(window: int | None) -> None:
    check(Case(window=window, images=True), (*MIXED, (150, 400)))


def test_windows_of_an_image() -> None:
    check(Case(images=True, windows=True), (*MIXED, (150, 400)))


def test_lengths_round_every_boundary() -> None:
    """Lengths around the boundaries of pages (16), blocks (64), ranges (128) and the most ranges
    (16 * 128)."""
    lengths = (1, 2, 15, 16, 17, 63, 64, 65, 127, 128, 129, 257, 2047, 2048, 2049, 4097)
    check(Case(), [(1, n) for n in lengths])
    tokens = (1, 2, 20, 21, 22, 42, 43, 64, 65)
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
    for before, bounds in ((OTHERS, BOUNDS), (OTHERS[:1], OTHER_BOUNDS)):
        check(Case(2, 2, dim=8, window=window, before=before, bounds=bounds), MIXED)


@pytest.mark.parametrize("cpu", CPUS, ids=lambda c: c.name)
def test_tokens_have_the_same_bits_together_and_one_by_one(cpu: Cpu) -> None:
    """Decoding and verifying drafts, where ranges begin and where they become longer."""
    for keys in (75, 264, 2056):
        in_pieces(Case(dtype="float16"), 16, keys, lambda given: attend(given, cpu))
    if cpu is BEST:
        in_pieces(Case(window=100), 40, 140, attend)


@pytest.mark.parametrize("cpu", CPUS, ids=lambda c: c.name)
def test_tokens_of_a_prompt_have_the_same_bits_in_any_chunks(cpu: Cpu) -> None:
    in_chunks(Case(dtype="float16"), 100, 264, lambda given: attend(given, cpu))
    if cpu is BEST:
        in_chunks(Case(window=100), 120, 300, attend)
        in_chunks(Case(heads=4, kv_heads=4), 60, 200, attend)


def test_no_sequences() -> None:
    assert (attend(inputs(Case(), (), padding=3)) == 0).all()
    assert attend(inputs(Case(), ())).size == 0


def test_a_step_may_be_smaller_than_its_sizes() -> None:
    """Buffers larger than the step, also of decode rows, as CUDA graphs round sizes up."""
    for sequences in (MIXED, [(1, 40), (1, 300)]):
        given = inputs(Case(), sequences, padding=5)
        given.sequences += 4
        np.testing.assert_allclose(attend(given), given.expected, rtol=0, atol=1e-5)
        assert (attend(given)[-5:] == 0).all()


def test_a_row_does_not_depend_on_its_neighbours() -> None:
    """Bit for bit: how a sequence is cut into tasks follows from its own lengths."""
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


def test_neon_compiles() -> None:
    case = Case(dtype="float16", window=64, softcap=9.0)
    text = assembly(attention.paged_attention, case.arguments, NEON)
    assert "fmla\tv" in text


def test_neon_compiles_every_other_kernel() -> None:
    case = Case(dtype="float16")
    kinds: list[tuple[Any, tuple[Any, ...]]] = [
        (append.append_kv, (case.layout,)),
        (append.copy_pages, (CacheTensor("", (2, 3, 16, 48), "float16"), LAYOUTS[0], 0)),
        (rope.rope, ((9, 64), (64,), 0)),
        (rope.rope_table, ((), (32,), 1.0)),
        (activation.gated, ((1536,), (1536,), "gelu")),
        (activation.softcap, ((1000,), 30.0)),
        (sample.sample, (1000, LAYOUTS[0])),
        (append.read_step, (LAYOUTS[0],)),
        (norm.add_rms_norm, ((576,), (576,), (576,), 1e-5, 0.0)),
    ]
    for factory, arguments in kinds:
        assert assembly(factory, arguments, NEON), factory
