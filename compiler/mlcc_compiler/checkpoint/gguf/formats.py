"""Block formats of GGUF tensors: weights and bytes per block.

Sizes are ggml's (the `gguf` package has its table); the meaning of a block's bits is in
`dequantize.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

FLOATS = ("F32", "F16", "BF16", "F64")
"""Unquantized weights, one a block."""
INTEGERS = ("I8", "I16", "I32", "I64")
INNER = ("Q8_1", "Q8_K")
"""Formats of activations inside llama.cpp; never in a file."""


@dataclass(frozen=True)
class BlockFormat:
    """`block` neighbours along a row take `size` bytes. `code` is ggml's number."""

    name: str
    code: int
    block: int
    size: int

    def nbytes(self, weights: int) -> int:
        """Bytes of this many weights, in whole blocks."""
        return weights // self.block * self.size


FORMATS = {
    int(kind): BlockFormat(kind.name, int(kind), *GGML_QUANT_SIZES[kind])
    for kind in GGMLQuantizationType
    if kind.name not in (*INTEGERS, *INNER)
}
"""Formats by ggml's number."""
