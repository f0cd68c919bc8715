"""Writes resize_vectors.json: images, sizes and filters, and the sha256 of what Pillow 13 makes
of them, or torch 2 on a CPU with AVX. The C++ and the TypeScript resize are tested against the same
file.

    python -m tests.runtime.multimodal.helpers.resize_vectors
"""

from __future__ import annotations

import hashlib
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

PATH = Path(__file__).parents[1] / "resize_vectors.json"
FILTERS = ("nearest", "lanczos", "bilinear", "bicubic", "torch-bilinear")
"""In the order of Pillow's numbers, and the one that it has not."""


def pixels_of(width: int, height: int, seed: int) -> np.ndarray[Any, Any]:
    """uint8 [height, width, 3]: the high bytes of a linear congruential generator of 32 bits, which
    any language can make."""
    state, made = seed, bytearray()
    for _ in range(width * height * 3):
        state = (state * 1664525 + 1013904223) & 0xFFFFFFFF
        made.append(state >> 24)
    return np.frombuffer(bytes(made), np.uint8).reshape(height, width, 3)


def wanted(pixels: np.ndarray[Any, Any], width: int, height: int, name: str) -> bytes:
    """By Pillow, or by torch."""
    if name == "torch-bilinear":
        given = torch.tensor(pixels).permute(2, 0, 1)[None]
        made = torch.nn.functional.interpolate(
            given, (height, width), mode="bilinear", antialias=True, align_corners=False
        )
        return bytes(made[0].permute(1, 2, 0).contiguous().numpy().tobytes())
    image = Image.fromarray(pixels).resize((width, height), Image.Resampling[name.upper()])
    return image.tobytes()


def vectors() -> list[dict[str, Any]]:
    """Sizes that shrink, grow and stretch, among them those in which Pillow 13 goes down first."""
    rng = random.Random(37)
    sizes = [(1, 1, 5, 7), (5, 7, 1, 1), (40, 9, 40, 31), (31, 40, 17, 40), (64, 64, 64, 64)]
    sizes += [(50, 60, 40, 40), (50, 61, 40, 40), (30, 90, 60, 20), (97, 11, 33, 8)]
    sizes += [(200, 150, 32, 32), (32, 32, 200, 150), (3, 300, 3, 7), (300, 3, 7, 3)]
    for _ in range(30):
        sizes.append(
            (rng.randint(1, 120), rng.randint(1, 120), rng.randint(1, 90), rng.randint(1, 90))
        )
    made = []
    for seed, (width, height, to_width, to_height) in enumerate(sizes):
        for name in FILTERS:
            given = pixels_of(width, height, seed)
            digest = hashlib.sha256(wanted(given, to_width, to_height, name)).hexdigest()
            made.append(
                {"seed": seed, "from": [width, height], "to": [to_width, to_height],
                 "filter": name, "sha256": digest}
            )  # fmt: skip
    return made


if __name__ == "__main__":
    lines = ",\n ".join(json.dumps(vector) for vector in vectors())
    PATH.write_text(f"[\n {lines}\n]\n", encoding="utf-8")
