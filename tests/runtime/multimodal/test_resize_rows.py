"""The resize of rows in C++ and in TypeScript against PyTorch (web/tests/model/images.test.ts has
the TypeScript half, over the shared vectors)."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pytest
import torch

from mlcc.multimodal.packing import resize_rows
from mlcc.util import executor_library

PATH = Path(__file__).parent / "row_vectors.json"
WIDTH = 3
BOUND = 2e-5
"""A place of up to 90 is rounded by 4e-6, and neighbours differ by up to 7."""


def by_torch(rows: np.ndarray, lines: int, columns: int) -> np.ndarray:
    """rows: f32[lines, columns, width]."""
    given = torch.from_numpy(rows).permute(2, 0, 1)[None]
    made = torch.nn.functional.interpolate(given, size=(lines, columns), mode="bilinear")
    return made[0].permute(1, 2, 0).numpy()


def error_of(rows: np.ndarray, wanted: np.ndarray) -> float:
    made = resize_rows(rows.tobytes(), *rows.shape[:2], *wanted.shape[:2])
    return float(np.abs(np.frombuffer(made, np.float32) - wanted.ravel()).max())


def test_cpp_and_the_vectors_equal_torch() -> None:
    for vector in json.loads(PATH.read_text(encoding="utf-8")):
        rows = np.array(vector["rows"], np.float32).reshape(*vector["from"], WIDTH)
        wanted = by_torch(rows, *vector["to"])
        assert np.abs(np.array(vector["resized"]) - wanted.ravel()).max() < 1e-6, vector
        assert error_of(rows, wanted) < 1e-6, vector


def test_cpp_equals_torch_on_random_sizes() -> None:
    rng, numbers = random.Random(2), np.random.default_rng(2)
    for _ in range(100):
        lines, columns, to_lines, to_columns = (rng.randint(1, 90) for _ in range(4))
        rows = numbers.standard_normal((lines, columns, WIDTH), np.float32)
        wanted = by_torch(rows, to_lines, to_columns)
        assert error_of(rows, wanted) < BOUND, (lines, columns, to_lines, to_columns)


@pytest.mark.parametrize(("lines", "to", "why"), [(0, 1, "no size"), (2, 1, "another grid")])
def test_nonsense_is_refused(lines: int, to: int, why: str) -> None:
    with pytest.raises(executor_library.load().Failed, match=why):
        resize_rows(bytes(12), lines, 2, to, to)
