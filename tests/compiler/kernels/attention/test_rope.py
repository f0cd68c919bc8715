"""Rotary embedding kernels against the twin, up to position 131071."""

from __future__ import annotations

import numpy as np
import pytest

from mlcc.device.reference import ops as twin
from mlcc.device.reference.pooling import mrope_table
from mlcc.device.reference.step_view import StepView
from mlcc_compiler.kernels.cpu.elementwise import rope
from tests.compiler.kernels.cases.cpu_kernels import CPUS, Cpu, normal, run
from tests.compiler.kernels.cases.step import placed_step


def frequencies(rotary_dim: int) -> np.ndarray:
    return (10000.0 ** (-np.arange(0, rotary_dim, 2) / rotary_dim)).astype(np.float32)


@pytest.mark.parametrize("count", [0, 1, 500])
def test_table(count: int) -> None:
    positions = np.random.default_rng(0).integers(0, 131072, count).astype(np.int32)
    positions[:1] = 131071
    (table,) = run(
        rope.rope_table, ((), (32,), 1.2), [positions, frequencies(64)], [((count, 64), "float32")]
    )
    expected = twin.rope_table(positions, frequencies(64), 1.2)
    np.testing.assert_allclose(table, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("sections", ["[8, 10, 14]", "[12, 10, 10]"])
def test_table_of_three_sections(sections: str, interleaved: int) -> None:
    batch, positions = placed_step()
    words = np.frombuffer(batch.words, np.int32)
    arguments = (batch.layout, 32, 1.2, sections, interleaved)
    tensors = [positions, frequencies(64), words]
    (table,) = run(rope.mrope_table, arguments, tensors, [((5, 64), "float32")])
    view = StepView(batch)
    expected = mrope_table(view, positions, frequencies(64), 1.2, sections, interleaved)
    np.testing.assert_allclose(table, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("cpu", CPUS, ids=lambda c: c.name)
@pytest.mark.parametrize(
    ("heads", "head_dim", "rotary_dim"), [(9, 64, 64), (3, 80, 32), (2, 96, 96), (4, 40, 20)]
)
@pytest.mark.parametrize("pairs", [False, True], ids=["halves", "pairs"])
@pytest.mark.parametrize("rows", [0, 1, 30])
def test_rotation(
    cpu: Cpu, heads: int, head_dim: int, rotary_dim: int, rows: int, pairs: bool
) -> None:
    x = normal(rows, rows, heads, head_dim)
    table = twin.rope_table(np.arange(rows, dtype=np.int32), frequencies(rotary_dim), 1.0)
    shape = (rows, heads, head_dim)
    arguments = ((heads, head_dim), (rotary_dim,), int(pairs))
    (y,) = run(rope.rope, arguments, [x, table], [(shape, "float32")], cpu)
    np.testing.assert_allclose(y, twin.rope(x, table, pairs), rtol=1e-5, atol=1e-6)


def test_rotation_keeps_length_and_depends_on_distance_only() -> None:
    """The property of rotary embeddings: <R_i q, R_j k> = <R_(i - j) q, k>."""
    q, k = normal(1, 1, 1, 64), normal(2, 1, 1, 64)

    def turned(x: np.ndarray, position: int) -> np.ndarray:
        table = twin.rope_table(np.array([position], np.int32), frequencies(64), 1.0)
        return run(rope.rope, ((1, 64), (64,), 0), [x, table], [((1, 1, 64), "float32")])[0]

    near = (turned(q, 7) * turned(k, 4)).sum()
    far = (turned(q, 1007) * turned(k, 1004)).sum()
    np.testing.assert_allclose(near, far, rtol=1e-3)
    np.testing.assert_allclose(np.linalg.norm(turned(q, 999)), np.linalg.norm(q), rtol=1e-6)
