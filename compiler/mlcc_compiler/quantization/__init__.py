"""Weight quantization: schemes and recipes as data rows, and the numpy code that applies them."""

from mlcc_compiler.quantization.codec import quantize
from mlcc_compiler.quantization.quantized import Quantized, dequantize, stack
from mlcc_compiler.quantization.recipes import RECIPES, Recipe, recipe, with_head
from mlcc_compiler.quantization.schemes import SCHEMES, Scheme, affine, fitting, scheme

__all__ = [
    "RECIPES",
    "SCHEMES",
    "Quantized",
    "Recipe",
    "Scheme",
    "affine",
    "dequantize",
    "fitting",
    "quantize",
    "recipe",
    "scheme",
    "stack",
    "with_head",
]
