"""Dequantizes GGUF's blocks to float32, exactly as ggml does.

The arithmetic is the `gguf` package's, which ggml's authors keep equal to their C.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import numpy.typing as npt
from gguf import quants
from gguf.constants import GGMLQuantizationType

from mlcc.errors import CheckpointError, UnsupportedError
from mlcc_compiler.checkpoint.gguf.formats import FLOATS, BlockFormat
from mlcc_compiler.checkpoint.gguf.header import GgufTensor

_CHUNK = 1 << 20
"""Weights at a time: dequantizing takes several times their bytes."""


def check_readable(tensor: GgufTensor) -> None:
    """Raises UnsupportedError for a format that cannot be dequantized here."""
    if not _is_known(tensor.format):
        raise UnsupportedError(
            f"tensor {tensor.name!r} of {tensor.path.name} is {tensor.format.name}, which mlcc "
            "cannot read; use a file in another format, for example Q4_K_M"
        )


@cache
def _is_known(form: BlockFormat) -> bool:
    if form.name in FLOATS:
        return True
    try:
        quants.dequantize(np.zeros((1, form.size), np.uint8), GGMLQuantizationType(form.code))
    except NotImplementedError:
        return False
    return True


def to_float(blocks: npt.NDArray[np.uint8], tensor: GgufTensor) -> npt.NDArray[np.float32]:
    """Rows of blocks [rows, bytes] as f32 [rows, weights]. NaN scales raise CheckpointError later,
    when the weight is checked: see `weights.convert.check_finite`."""
    check_readable(tensor)
    name = tensor.format.name
    if name == "F64":
        return blocks.view("<f8").astype(np.float32)
    kind = GGMLQuantizationType(tensor.format.code)
    length = blocks.shape[1] // tensor.format.size * tensor.format.block
    out = np.empty((len(blocks), length), np.float32)
    step = max(1, _CHUNK // length)
    for first in range(0, len(blocks), step):
        try:
            with np.errstate(all="ignore"):  # damaged scales become NaN, refused by name later
                out[first : first + step] = quants.dequantize(blocks[first : first + step], kind)
        except (IndexError, ValueError) as error:
            raise CheckpointError(
                f"{tensor.path}: tensor {tensor.name!r} holds codes that {name} does not have "
                f"({error}); fetch the file again"
            ) from error
    return out
