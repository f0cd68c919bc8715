"""Rows that the host writes in place of tokens, and weighted sums of a table's rows: CPU and GPU
kernels against their twins."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mlcc.device.reference import embeddings as twin
from mlcc_compiler.kernels.cpu.elementwise import inputs_embeds as cpu
from mlcc_compiler.kernels.gpu.elementwise import inputs_embeds as gpu
from tests.compiler.kernels.cases import cpu_kernels, gpu_kernels

VOCAB = 10
KINDS = {"cpu": (cpu, cpu_kernels.run), "vulkan": (gpu, gpu_kernels.run)}


@pytest.fixture(params=list(KINDS))
def kernels(request: pytest.FixtureRequest) -> Any:
    if request.param == "vulkan":
        request.getfixturevalue("vulkan")
    return KINDS[request.param]


@pytest.mark.parametrize("width", [7, 48])
@pytest.mark.parametrize(("part", "parts", "added"), [(0, 1, 0), (0, 3, 0), (2, 3, 1)])
def test_rows_in_place_of_tokens(
    kernels: Any, width: int, part: int, parts: int, added: int
) -> None:
    source, run = kernels
    rng = np.random.default_rng(0)
    ids = np.array([3, VOCAB + 4, VOCAB, 9, VOCAB + 1], np.int32)
    rows = rng.standard_normal((5, parts * width), np.float32)
    x = rng.standard_normal((5, width), np.float32)
    wanted = twin.inputs_embeds(rows, ids, x, width, VOCAB, part, parts, added)
    arguments = (width, VOCAB, True, part, parts, added)
    (found,) = run(source.inputs_embeds, arguments, [ids, x, rows], [((5, width), "float32")])
    np.testing.assert_array_equal(found, wanted)
    assert not np.array_equal(found[1], x[1]) and np.array_equal(found[0], x[0])


@pytest.mark.parametrize(("count", "hidden"), [(25, 32), (9, 5)])
@pytest.mark.parametrize("n", [0, 1, 70])
def test_weighted_sums_of_rows(kernels: Any, count: int, hidden: int, n: int) -> None:
    source, run = kernels
    rng = np.random.default_rng(0)
    table = rng.standard_normal((count, hidden), np.float32)
    numbers = rng.integers(0, count, (n, 4)).astype(np.float32)
    taps = np.concatenate([numbers, rng.random((n, 4), np.float32)], 1)
    (found,) = run(
        source.embedding_bag, ((8,), (count, hidden)), [taps, table], [((n, hidden), "float32")]
    )
    np.testing.assert_allclose(found, twin.embedding_bag(taps, table), rtol=1e-6, atol=1e-6)
