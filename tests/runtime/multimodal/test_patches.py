"""Patches of pixels, beside numpy's own slicing."""

from __future__ import annotations

import numpy as np
import pytest

from mlcc.multimodal.patches import patch_rows


@pytest.mark.parametrize(
    ("height", "width", "patch", "merge"),
    [(32, 32, 4, 2), (28, 56, 14, 1), (48, 16, 2, 4), (87, 45, 14, 3)],
)
def test_rows_are_patches_in_the_order_of_blocks(
    height: int, width: int, patch: int, merge: int
) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (height, width, 3), np.uint8)
    pixels[0, :2] = [0, 1, 255], [2, 3, 254]
    found = np.frombuffer(patch_rows(pixels.tobytes(), height, width, patch, merge), np.float32)
    side = patch * merge
    kept = pixels[: height // side * side, : width // side * side]
    blocks = kept.reshape(height // side, merge, patch, width // side, merge, patch, 3)
    wanted = blocks.transpose(0, 3, 1, 4, 2, 5, 6).reshape(-1)
    assert np.array_equal(found, wanted.astype(np.float32))
