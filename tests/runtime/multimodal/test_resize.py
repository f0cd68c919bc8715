"""The resize in C++ and in TypeScript against Pillow and torch, to the byte, over shared vectors
(web/tests/model/resize.test.ts has the TypeScript half)."""

from __future__ import annotations

import ctypes
import hashlib
import json
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import PIL
import pytest

from mlcc.util.executor_library import LIBRARY
from tests.runtime.multimodal.helpers.resize_vectors import FILTERS, PATH, pixels_of, wanted

VECTORS: list[dict[str, Any]] = json.loads(PATH.read_text(encoding="utf-8"))
IS_13 = int(PIL.__version__.split(".")[0]) >= 13
"""Before 13, Pillow went across first in any case."""
needs_13 = pytest.mark.skipif(not IS_13, reason="Pillow 13 changed the order of passes")
Resize = Callable[[np.ndarray[Any, Any], int, int, int], bytes]


@pytest.fixture(scope="module")
def resize() -> Resize:
    library = ctypes.CDLL(str(LIBRARY))
    library.mlcc_executor_error.restype = ctypes.c_char_p

    def call(pixels: np.ndarray[Any, Any], width: int, height: int, number: int) -> bytes:
        made = ctypes.create_string_buffer(max(3 * width * height, 1))
        given = pixels.tobytes()
        sizes = (pixels.shape[1], pixels.shape[0], number)
        if library.mlcc_executor_resize(given, *sizes, made, width, height):
            raise ValueError(library.mlcc_executor_error().decode())
        return made.raw

    return call


def test_cpp_gives_the_vectors(resize: Resize) -> None:
    for vector in VECTORS:
        pixels = pixels_of(*vector["from"], vector["seed"])
        made = resize(pixels, *vector["to"], FILTERS.index(vector["filter"]))
        assert hashlib.sha256(made).hexdigest() == vector["sha256"], vector


@needs_13
def test_the_vectors_are_those_of_pillow_and_torch() -> None:
    for vector in VECTORS:
        pixels = pixels_of(*vector["from"], vector["seed"])
        made = wanted(pixels, *vector["to"], vector["filter"])
        assert hashlib.sha256(made).hexdigest() == vector["sha256"], vector


@needs_13
def test_cpp_equals_pillow_and_torch_on_random_sizes(resize: Resize) -> None:
    rng = random.Random(1)
    numbers = np.random.default_rng(1)
    for case in range(400):
        most = 40 if case % 4 else 300
        height, width, to_height, to_width = (rng.randint(1, most) for _ in range(4))
        if case % 5 == 0:  # a difference of heights that is just twice that of widths
            to_width = rng.randint(max(1, width - (height - 1) // 2), width)
            to_height = height - 2 * (width - to_width)
        pixels = numbers.integers(0, 256, (height, width, 3), np.uint8)
        if case % 3 == 0:
            pixels = np.where(pixels > 127, 255, 0).astype(np.uint8)  # overshoots are clipped
        number = rng.randrange(len(FILTERS))
        expected = wanted(pixels, to_width, to_height, FILTERS[number])
        assert resize(pixels, to_width, to_height, number) == expected, (pixels.shape, to_height)


@pytest.mark.parametrize(
    ("size", "number", "message"),
    [((0, 5), 1, "no size"), ((16385, 1), 1, "above 16384"), ((5, 5), 9, "no filter of that")],
)
def test_nonsense_is_refused(
    size: tuple[int, int], number: int, message: str, resize: Resize
) -> None:
    with pytest.raises(ValueError, match=message):
        resize(pixels_of(4, 4, 0), *size, number)
