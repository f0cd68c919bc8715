"""The block formats of GGUF's tensors: how many weights a block has, and how many bytes.

Sizes are ggml's (the `gguf` package has its table); what the bits of a block mean is
`blocks.py`'s.
"""

from __future__ import annotations

from dataclasses import dataclass

from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

FLOATS = ("F32", "F16", "BF16", "F64")
"""Weights as they are, one a block."""
INTEGERS = ("I8", "I16", "I32", "I64")
INNER = ("Q8_1", "Q8_K")
"""What llama.cpp makes of activations; never in a file."""


@dataclass(frozen=True)
class BlockFormat:
    """`block` neighbours along a row take `size` bytes. `code` is ggml's number."""

    name: str
    code: int
    block: int
    size: int

    def nbytes(self, weights: int) -> int:
        """Of so many weights, whole blocks of them."""
        return weights // self.block * self.size


FORMATS = {
    int(kind): BlockFormat(kind.name, int(kind), *GGML_QUANT_SIZES[kind])
    for kind in GGMLQuantizationType
    if kind.name not in (*INTEGERS, *INNER)
}
"""By ggml's number."""
