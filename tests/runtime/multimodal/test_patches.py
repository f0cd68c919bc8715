"""Patches of pixels, beside numpy's own slicing."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from mlcc.multimodal.patches import PatchGrid, patch_rows, with_taps


@pytest.mark.parametrize(
    ("height", "width", "patch", "merge"),
    [(32, 32, 4, 2), (28, 56, 14, 1), (48, 16, 2, 4), (87, 45, 14, 3)],
)
def test_rows_are_patches_in_the_order_of_blocks(
    height: int, width: int, patch: int, merge: int
) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (height, width, 3), np.uint8)
    pixels[0, :2] = [0, 1, 255], [2, 3, 254]
    grid = PatchGrid(height // patch, width // patch, merge)
    found = np.frombuffer(patch_rows(pixels.tobytes(), width, patch, grid), np.float32)
    side = patch * merge
    kept = pixels[: height // side * side, : width // side * side]
    blocks = kept.reshape(height // side, merge, patch, width // side, merge, patch, 3)
    wanted = blocks.transpose(0, 3, 1, 4, 2, 5, 6).reshape(-1)
    assert np.array_equal(found, wanted.astype(np.float32))


@pytest.mark.parametrize("size", [(8, 8), (6, 6), (4, 16), (22, 14), (2, 2), (12, 40)])
def test_windows_are_those_of_transformers(size: tuple[int, int]) -> None:
    torch = pytest.importorskip("torch")
    from transformers.models.qwen2_5_vl import modeling_qwen2_5_vl as qwen

    merge, window = 2, 3
    grid = PatchGrid(*size, merge, window)
    shape = torch.tensor([[1, *size]])
    order, bounds = qwen.get_vision_window_index(
        shape, spatial_merge_size=merge, window_size=window * merge * 14, patch_size=14
    )
    assert grid.raster == order.tolist()
    edges = torch.unique_consecutive(bounds).tolist()
    columns = grid.columns
    wanted = [(a, b - 1) for a, b in pairwise(edges) for _ in range(a, b)]
    assert list(zip(columns["visible_from"], columns["visible_until"], strict=True)) == wanted
    places = qwen.get_vision_position_ids(shape, merge).reshape(-1, merge**2, 2)
    found = list(zip(columns["position_h"], columns["position_w"], strict=True))
    assert found == [tuple(place) for place in places[order].reshape(-1, 2).tolist()]


@pytest.mark.parametrize("size", [(8, 8), (4, 16), (22, 14), (2, 2), (48, 48), (96, 50)])
def test_positions_lie_between_those_of_transformers(size: tuple[int, int]) -> None:
    torch = pytest.importorskip("torch")
    from transformers.vision_utils import get_vision_interpolation_indices_and_weights

    taps = b"".join(PatchGrid(*size, 2).position_taps(48))
    found = np.frombuffer(taps, np.float32).reshape(-1, 2, 4)
    numbers, weights = get_vision_interpolation_indices_and_weights(
        torch.tensor([[1, *size]]), 48, align_corners=True, spatial_merge_size=2
    )
    table = np.random.default_rng(0).standard_normal((48 * 48, 3))
    wanted = (table[numbers.numpy()] * weights.numpy()[:, :, None]).sum(1)
    own = (table[found[:, 0].astype(int)] * found[:, 1, :, None]).sum(1)
    np.testing.assert_allclose(own, wanted, rtol=0, atol=3e-5)


def test_taps_follow_their_patch() -> None:
    assert with_taps(b"aabb", [b"1", b"2"]) == b"aa1bb2"
