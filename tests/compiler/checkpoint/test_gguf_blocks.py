"""Blocks of every format are unpacked to codes that represent ggml's numbers, to the bit."""

from __future__ import annotations

import json
from base64 import b64decode
from pathlib import Path

import numpy as np
import pytest
from gguf import quants
from gguf.constants import GGMLQuantizationType

from mlcc_compiler.checkpoint.gguf.block_codes import NEAREST, SCHEMES, quantized
from mlcc_compiler.checkpoint.gguf.dequantize import to_float
from mlcc_compiler.checkpoint.gguf.formats import FLOATS, FORMATS
from mlcc_compiler.checkpoint.gguf.header import GgufTensor
from mlcc_compiler.quantization import dequantize

BY_NAME = {form.name: form for form in FORMATS.values()}
ROWS, BLOCKS = 3, 4


def random_blocks(name: str) -> np.ndarray:
    """Any bytes are codes; float16s among them must be numbers."""
    form = BY_NAME[name]
    blocks = np.random.default_rng(0).integers(0, 256, (ROWS * BLOCKS, form.size), dtype=np.uint8)
    for first in HALVES[name]:
        numbers = np.random.default_rng(first).normal(size=len(blocks)).astype(np.float16)
        blocks[:, first : first + 2] = numbers.view(np.uint8).reshape(-1, 2)
    return blocks.reshape(ROWS, -1)


HALVES = {
    "Q4_0": (0,), "Q4_1": (0, 2), "Q5_0": (0,), "Q5_1": (0, 2), "Q8_0": (0,), "Q2_K": (80, 82),
    "Q3_K": (108,), "Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,), "IQ4_NL": (0,),
    "IQ4_XS": (0,), "MXFP4": (), "NVFP4": (),
}  # fmt: skip


@pytest.mark.parametrize("name", SCHEMES)
def test_values_are_untouched(name: str) -> None:
    blocks = random_blocks(name)
    found = quantized(blocks, BY_NAME[name])
    found.check(name)
    expected = quants.dequantize(blocks, GGMLQuantizationType(BY_NAME[name].code))
    assert found.codes.max() == found.scheme.levels
    np.testing.assert_array_equal(dequantize(found), expected)


RECORDED = json.loads(Path(__file__).with_name("ggml_blocks.json").read_text(encoding="utf-8"))
"""ggml's own values, of C code that shares nothing with the `gguf` package."""


@pytest.mark.parametrize("name", sorted(RECORDED.keys() - {"origin"}))
def test_values_are_ggmls_own(name: str) -> None:
    blocks, values = (b64decode(text) for text in RECORDED[name])
    form = BY_NAME[name]
    rows = np.frombuffer(blocks, np.uint8).reshape(2, -1)
    expected = np.frombuffer(values, "<f4").reshape(2, -1)
    tensor = GgufTensor(Path("a.gguf"), name, form, expected.shape, 0)
    np.testing.assert_array_equal(to_float(rows, tensor), expected)
    if name in SCHEMES:
        np.testing.assert_array_equal(dequantize(quantized(rows, form)), expected)


def test_every_format_that_is_read_is_recorded() -> None:
    assert RECORDED.keys() - {"origin"} == SCHEMES.keys() | NEAREST.keys() - {*FLOATS}


def test_every_format_has_a_scheme_or_a_fallback() -> None:
    assert set(SCHEMES) | set(NEAREST) == set(BY_NAME) - {"Q1_0"}
