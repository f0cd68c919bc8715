"""Attention whose products are of bf16 against the twin, within what rounded weights may change.

The twin attends with queries, keys and values rounded as the kernel rounds them. What is left is
that a block's weights are rounded, too: half a unit in the last of 8 bits each, so no sum is
further off than 2**-8 of the same sum with all values above zero. Sequences of few tokens are not
rounded at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from itertools import pairwise
from math import e, log2
from typing import Any

import numpy as np
import pytest

from mlcc.device.reference.step_view import StepView
from mlcc.util.machine import cpu_features
from mlcc_compiler.kernels.cpu.attention import attention
from mlcc_compiler.kernels.cpu.attention.blocking import FEW, Blocking
from mlcc_compiler.kernels.cpu.attention.sequences import FEW_TOKENS
from mlcc_compiler.kernels.cpu.isa import bf16_pairs, isa
from tests.compiler.kernels.attention.test_kv_int8 import bound as bound_of_few
from tests.compiler.kernels.cases.attention import (
    MIXED,
    Case,
    Inputs,
    alone,
    in_chunks,
    in_pieces,
    inputs,
)
from tests.compiler.kernels.cases.cpu_kernels import (
    AVX512,
    AVX512_AMX,
    AVX512_BF16,
    Cpu,
    assembly,
    run,
)
from tests.compiler.kernels.linear.test_bf16 import floats, nearest
from tests.helpers.emulators import amx_emulator

CPU = AVX512_BF16
WHOLE = ((1, 1), (16, 16), (5, 5), (130, 130), (64, 64), (3, 3), (333, 333))

LEVELS = pytest.mark.parametrize(
    "cpu", [AVX512_BF16, AVX512_AMX], indirect=True, ids=lambda each: each.name
)


def levels(name: str, values: Sequence[int], with_amx: Sequence[int]) -> Any:
    """Both levels with each value; AMX, which shares the masks and how rows are cut, with some in
    every run and with the others in long ones."""
    both = [pytest.param(AVX512_BF16, value, id=f"avx512-bf16-{value}") for value in values]
    for value in values:
        marks = [] if value in with_amx else [pytest.mark.long]
        both.append(pytest.param(AVX512_AMX, value, id=f"avx512-amx-{value}", marks=marks))
    return pytest.mark.parametrize(("cpu", name), both, indirect=["cpu"])


@pytest.fixture
def cpu(request: Any, monkeypatch: pytest.MonkeyPatch) -> Cpu:
    """The instruction set whose kernels `attend` runs."""
    found: Cpu = request.param
    if not found.needs <= cpu_features():
        pytest.skip("needs AVX512-BF16")
    monkeypatch.setitem(globals(), "CPU", found)
    return found


def attend(given: Inputs) -> Any:
    arguments, out = [*given.columns, *given.sinks, given.sequences], [(given.q.shape, "float32")]
    with amx_emulator.tiles() if CPU is AVX512_AMX else nullcontext():
        return run(attention.paged_attention, given.case.arguments, arguments, out, CPU)[0]


def rounded(x: Any) -> Any:
    return floats(nearest(np.ascontiguousarray(x, np.float32)))


def expected(given: Inputs) -> tuple[Any, Any]:
    """(the twin's output, the bound of the error)."""
    case = given.case
    scale = np.float32(case.scale * (log2(e) if case.softcap is None else 1.0))
    q = rounded(given.q * scale) * np.float32(case.scale / (scale * case.scale))
    some = replace(given, q=q, pages=given.pages if case.layout.is_int8 else rounded(given.pages))
    positive = some.pages.copy()
    positive[:, 1] = np.abs(positive[:, 1])
    bound = 2.0**-8 * replace(some, pages=positive).expected + 2e-5
    few, of_few = few_rows(given), bound_of_few(case, CPU)
    return np.where(few, given.expected, some.expected), np.where(few, of_few, bound)


def few_rows(given: Inputs) -> Any:
    """bool[n, 1, 1]: the tokens of sequences that are not rounded, and those of no sequence."""
    case, few = given.case, np.ones(len(given.q), bool)
    ends = StepView(given.batch).lists(case.layout.group).first_token
    for begin, end in pairwise(ends[: len(ends) - given.batch.num_prompts]):
        few[begin:end] = end - begin <= FEW_TOKENS and case.shape.group <= FEW
    first = ends[-1 - given.batch.num_prompts]
    few[first : ends[-1]] = False
    return few[:, None, None]


def check(case: Case, sequences: Any, seed: int = 0, prompts: int = 0) -> None:
    given = inputs(case, sequences, seed, 2, prompts)
    wanted, bound = expected(given)
    assert np.isfinite(wanted).all()
    assert (np.abs(attend(given) - wanted) <= bound).all()


def test_where_it_is_used() -> None:
    case = Case(dtype="float16")

    def used(device: isa.Isa = CPU.isa, **other: Any) -> bool:
        changed = replace(case, **other)
        return Blocking(changed.shape, changed.layout, device).uses_bf16

    assert used() and used(dtype="int8") and used(dim=256) and used(page=128)
    assert not used(dtype="float32") and not used(dim=80) and not used(page=8)
    assert not used(AVX512.isa) and used(isa.AVX512_AMX)
    assert not used(replace(isa.AVX512_AMX, activation_parts=2))
    assert not used(replace(CPU.isa, activation_parts=2))


def test_it_compiles_to_the_instruction() -> None:
    """The instructions are inlined in code for CPUs that have them, and absent for others."""
    case = Case(dtype="float16")
    text = assembly(attention.paged_attention, case.arguments, CPU)
    assert text.count("vdpbf16ps") > 100 and text.count("vcvtne2ps2bf16") > 4
    for name in (bf16_pairs.DOT2, bf16_pairs.PAIR, bf16_pairs.HALVES):
        assert "callq\t" + name not in text
    text = assembly(attention.paged_attention, case.arguments, AVX512)
    assert "vdpbf16ps" not in text


@LEVELS
@pytest.mark.parametrize("dtype", ["float16", "int8"])
def test_mixed_batch(cpu: Cpu, dtype: str) -> None:
    check(Case(dtype=dtype), MIXED)
    check(Case(dtype=dtype), (*MIXED, (300, 301), (9, 700), (200, 900)))


@levels("group", [1, 3, 4, 5, 16], with_amx=[3, 16])
def test_groups(cpu: Cpu, group: int) -> None:
    """Rows that end within register tiles, of which some see more of a block than others."""
    check(Case(heads=2 * group, kv_heads=2, dim=32, dtype="float16"), MIXED)


@levels("dim", [32, 96, 128, 160, 256], with_amx=[96, 256])
def test_head_dims(cpu: Cpu, dim: int) -> None:
    check(Case(heads=4, kv_heads=2, dim=dim, dtype="float16"), MIXED)


@levels("page", [48, 80, 128, 272], with_amx=[48])
def test_page_sizes(cpu: Cpu, page: int) -> None:
    """Blocks that are no multiple of 32 keys. Bytes where a page ends within 32 keys, and where it
    is larger than a block; pages of 16 are `test_mixed_batch`'s."""
    for dtype in ("float16", "int8") if page in (48, 272) else ("float16",):
        check(Case(heads=4, kv_heads=2, dim=32, page=page, dtype=dtype), (*MIXED, (70, 600)))


@levels("window", [1, 20, 100, 128, 1000], with_amx=[1, 100])
def test_windows(cpu: Cpu, window: int) -> None:
    """The narrowest, and those that end within blocks."""
    sequences = (*MIXED, (1, 1500), (30, 400), (300, 300), (150, 700))
    check(Case(window=window, dtype="float16"), sequences)
    check(Case(window=window, dtype="float16", causal=False), WHOLE)


@LEVELS
@pytest.mark.parametrize("dtype", ["float16", "int8"])
def test_softcap_and_sinks(cpu: Cpu, dtype: str) -> None:
    check(Case(softcap=5.0, dtype=dtype), MIXED)
    check(Case(softcap=5.0, window=33, dtype=dtype), MIXED)
    check(Case(sinks=True, dtype=dtype), (*MIXED, (200, 200)))


@LEVELS
def test_both_ways(cpu: Cpu) -> None:
    check(Case(causal=False, dtype="float16"), WHOLE)
    check(Case(causal=False, dtype="int8"), WHOLE)


@LEVELS
@pytest.mark.parametrize("window", [None, 60])
def test_images_both_ways(cpu: Cpu, window: int | None) -> None:
    check(Case(window=window, dtype="float16", images=True), (*MIXED, (150, 400)))


@LEVELS
def test_windows_of_an_image(cpu: Cpu) -> None:
    check(Case(dtype="float16", images=True, windows=True), (*MIXED, (150, 400)))


@LEVELS
def test_lengths_round_every_boundary(cpu: Cpu) -> None:
    """Lengths around the boundaries of pairs, vectors (16), steps (32, 64), blocks (128), tiles (21
    tokens) and few rows (8)."""
    tokens = (2, 3, 4, 15, 16, 17, 20, 21, 22, 24, 31, 32, 33, 63, 64, 65, 127, 128, 129, 255, 257)
    for dtype, more in (("float16", 0), ("float16", 1), ("int8", 100), ("int8", 127)):
        sequences = [(n, n + more) for n in tokens]
        check(Case(dtype=dtype), sequences[:15])
        check(Case(dtype=dtype), sequences[15:])


@LEVELS
def test_random_batches(cpu: Cpu) -> None:
    rng = np.random.default_rng(3)
    for seed in range(12):
        queries = rng.integers(1, 150, int(rng.integers(1, 7)))
        sequences = [(int(n), int(n + rng.integers(0, 300))) for n in queries]
        window = (None, 60, 200)[seed % 3]
        check(Case(window=window, dtype="float16" if seed % 2 else "int8"), sequences, seed)


@LEVELS
def test_a_row_does_not_depend_on_its_neighbours(cpu: Cpu) -> None:
    sequences = ((90, 500), (30, 200), (1, 33), (100, 100))
    for case in (Case(dtype="float16"), Case(window=100, dtype="int8")):
        given = inputs(case, sequences)
        share_input, first = attend(given), 0
        for s, (queries, _) in enumerate(sequences):
            by_itself = attend(alone(given, s))
            np.testing.assert_array_equal(by_itself, share_input[first : first + queries])
            first += queries


@LEVELS
def test_rows_whose_scores_rise_at_different_keys(cpu: Cpu) -> None:
    """With AMX a row's sums are scaled when its scores are far above those before: at other keys
    in each row here, and in some not at all. The others' bits do not change by it."""
    given = inputs(Case(dtype="float16"), ((90, 700),))
    still = attend(given)
    for page, rise in zip(StepView(given.batch).lists(0).ids, np.linspace(1, 30, 44), strict=True):
        given.pages[page, 0] *= rise
    given.q[::3] *= 8
    given.q[1::3] *= 0.01
    wanted, bound = expected(given)
    y = attend(given)
    assert (np.abs(y - wanted) <= bound + 1e-3).all()
    given.q[::3] = 0
    np.testing.assert_array_equal(attend(given)[1::3], y[1::3])
    assert (np.abs(y[::3] - still[::3]) > 0.1).any()


@LEVELS
def test_tokens_have_the_same_bits_together_and_one_by_one(cpu: Cpu) -> None:
    """Few rows, which are not rounded; of large groups, many."""
    in_pieces(Case(dtype="float16"), 16, 264, attend)
    in_pieces(Case(window=100, dtype="int8"), 40, 140, attend)
    in_pieces(Case(heads=32, kv_heads=2, dim=32, dtype="float16"), 16, 264, attend)


@LEVELS
def test_tokens_of_a_prompt_have_the_same_bits_in_any_chunks(cpu: Cpu) -> None:
    """Few of them are rounded as many are. With pages of 16, AMX begins windows at whole steps."""
    in_chunks(Case(dtype="float16"), 100, 264, attend)
    in_chunks(Case(window=100, dtype="int8"), 120, 300, attend)
    in_chunks(Case(heads=32, kv_heads=2, dim=32, dtype="float16"), 60, 200, attend)


@LEVELS
def test_few_tokens_of_prompts(cpu: Cpu) -> None:
    check(Case(dtype="float16"), MIXED, prompts=6)
    check(Case(window=20, dtype="float16"), (*MIXED, (1, 1500)), prompts=9)


@LEVELS
def test_equal_scores_average_and_one_far_above_wins(cpu: Cpu) -> None:
    """Exact, if every product and sum is in its place: queries of zero weight all keys equally, and
    a query that matches one key alone gives that key's value."""
    given = inputs(Case(heads=3, kv_heads=1, dtype="float16"), ((200, 200),))
    ids = StepView(given.batch).lists(0).ids
    keys, values = (np.concatenate([given.pages[i, which, 0] for i in ids]) for which in range(2))
    given.q[:] = 0
    for i in range(200):
        values[i] = i  # exact in bf16, and so are their weights, which are all 1
    for i, page in enumerate(ids):
        given.pages[page, 1, 0] = values[16 * i : 16 * i + 16]
    wanted = np.broadcast_to((np.arange(200) / 2)[:, None, None], given.q.shape)
    np.testing.assert_allclose(attend(given), wanted, rtol=2e-6)
    keys[:] = 0
    for i in range(200):
        keys[i, i % 32] = -1000 if i < 100 else 0
    for i, page in enumerate(ids):
        given.pages[page, 0, 0] = keys[16 * i : 16 * i + 16]
    given.q[:] = 1
    y = attend(given)
    np.testing.assert_allclose(y[100:, 0, 0], (100 + np.arange(100, 200)) / 2, rtol=2e-6)


@LEVELS
def test_large_scores_do_not_overflow(cpu: Cpu) -> None:
    """The query meets few keys then, each of which it gives as it is, rounded."""
    given = inputs(Case(dtype="float16"), ((70, 300), (21, 21)))
    given.q *= 1000
    wanted, bound = expected(given)
    assert (np.abs(attend(given) - wanted) <= bound + 1e-2).all()
    given.q *= 1e30
    assert np.isfinite(attend(given)).all()


@LEVELS
def test_what_is_no_number_stays_so(cpu: Cpu) -> None:
    """NaN in a query, a key and a value reaches only the queries that read it; by AMX, a value also
    those that read another of the same 32."""
    for which in range(2):
        reached = 32 if which and cpu is AVX512_AMX else 50
        given = inputs(Case(heads=3, kv_heads=1, dtype="float16"), ((80, 80),))
        page = StepView(given.batch).lists(0).ids[3]
        given.pages[page, which, 0, 2] = np.nan  # of token 50
        y = attend(given)
        assert np.isfinite(y[:reached]).all() and np.isnan(y[50:]).all()
    given = inputs(Case(dtype="float16"), ((80, 80),))
    given.q[7, 4] = np.nan
    y = attend(given)
    assert np.isnan(y[7, 4]).all()
    y[7, 4] = 0
    assert np.isfinite(y).all()
