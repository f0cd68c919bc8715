"""Writes decode_vectors.json: image files, and the pixels that Pillow decodes them to. A browser's
decoding is tested against the same file (web/tests/page/images.test.ts).

    python -m tests.runtime.multimodal.helpers.decode_vectors
"""

from __future__ import annotations

import json
from base64 import b64encode
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from mlcc.multimodal.image import decode
from tests.runtime.multimodal.helpers.pictures import encoded, given, noise

PATH = Path(__file__).parents[1] / "decode_vectors.json"
LOSSY = 2
"""By how many levels another decoder of JPEG and WebP may differ. Chromium's differ by none."""


def every_alpha() -> Image.Image:
    """Random colours, each alpha once."""
    image = noise(16, 16, 7)
    image.putalpha(Image.fromarray(np.arange(256, dtype=np.uint8).reshape(16, 16)))
    return image


def smooth() -> Image.Image:
    """Gradients, as lossy formats keep them."""
    y, x = np.mgrid[0:16, 0:24]
    return Image.fromarray(np.stack([10 * x, 15 * y, 5 * (x + y)], -1).astype(np.uint8))


def files() -> dict[str, bytes]:
    """By name, which begins with the format."""
    grey, indexed, turned = noise(12, 9, 1, 1), noise(14, 11, 3).quantize(40), Image.Exif()
    turned[0x0112] = 6
    frames = [noise(9, 8, seed).quantize(32) for seed in (5, 6)]
    return {
        "png": encoded(noise(13, 9, 1)),
        "png, every alpha": encoded(every_alpha()),
        "png, grey": encoded(grey),
        "png, grey with alpha": encoded(Image.merge("LA", (grey, noise(12, 9, 2, 1)))),
        "png, a bit a pixel": encoded(grey.convert("1")),
        "png, indexed": encoded(indexed),
        "png, indexed with a clear colour": encoded(indexed, transparency=3),
        "png, turned by EXIF": encoded(noise(13, 9, 4), exif=turned),
        "gif, a clear colour": encoded(indexed, "GIF", transparency=3),
        "gif, two frames": encoded(frames[0], "GIF", save_all=True, append_images=frames[1:]),
        "webp": encoded(noise(13, 9, 8), "WEBP", lossless=True),
        "webp, every alpha": encoded(every_alpha(), "WEBP", lossless=True, exact=True),
        "webp, lossy": encoded(smooth(), "WEBP"),
        "jpeg": encoded(smooth(), "JPEG", subsampling=0),
        "jpeg, half the colours": encoded(smooth(), "JPEG", subsampling=2),
        "jpeg, progressive": encoded(smooth(), "JPEG", progressive=True),
        "jpeg, grey": encoded(smooth().convert("L"), "JPEG"),
        "jpeg, turned by EXIF": encoded(smooth(), "JPEG", exif=turned),
    }


def vector(name: str, data: bytes) -> dict[str, Any]:
    image = decode(given(data))
    return {
        "name": name,
        "type": f"image/{name.partition(',')[0]}",
        "file": b64encode(data).decode(),
        "size": list(image.size),
        "rgb": b64encode(image.tobytes()).decode(),
        "levels": LOSSY if name.startswith("jpeg") or "lossy" in name else 0,
    }


if __name__ == "__main__":
    lines = ",\n ".join(json.dumps(vector(*each)) for each in files().items())
    PATH.write_text(f"[\n {lines}\n]\n", encoding="utf-8")
