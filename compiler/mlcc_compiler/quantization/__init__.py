"""Weight quantization: schemes and recipes as data rows, and the numpy code that applies them."""

from mlcc_compiler.quantization.codec import Quantized, dequantize, quantize
from mlcc_compiler.quantization.schemes import (
    RECIPES,
    SCHEMES,
    Recipe,
    Scheme,
    recipe,
    scheme,
    with_head,
)

__all__ = [
    "RECIPES",
    "SCHEMES",
    "Quantized",
    "Recipe",
    "Scheme",
    "dequantize",
    "quantize",
    "recipe",
    "scheme",
    "with_head",
]
