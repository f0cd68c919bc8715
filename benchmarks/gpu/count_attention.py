"""Counts the machine code of attention of prompts, without a model or a GPU.

    python -m benchmarks.gpu.count_attention [--arch sm_90]

An 8B model's (32 heads, 8 of keys, 128 wide) and the latent attention of DeepSeek V3 and V2 Lite
(128 and 16 heads, latents of 512 and 64), pages of float16. The loop is that of a block of keys;
`count.py` says what the columns are.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import Any

from benchmarks.gpu.count import Count, table
from benchmarks.gpu.count_linear import counts_of
from mlcc.engine.batch.tables import CacheGroup, StepLayout
from mlcc_compiler.ir.layout import AttentionShape, KvLayout
from mlcc_compiler.ir.mla import MlaLayout, MlaShape
from mlcc_compiler.kernels.frame import SIZE, activations, kernel
from mlcc_compiler.kernels.gpu.attention import attention, latent
from mlcc_compiler.kernels.gpu.attention.sequences import PagedSequences, arguments
from mlcc_compiler.kernels.gpu.device import Gpu
from mlcc_targets import Choices, get_target

_PAGE = 16
_STEP = StepLayout((CacheGroup("paged", _PAGE),), 2048, 256, 256, 65536, 256)


def plain(arch: str = "sm_90", heads: int = 32, kv_heads: int = 8, head_dim: int = 128) -> Count:
    """Of attention over pages of keys and values. Raises TargetError."""
    shape = AttentionShape(heads, kv_heads, head_dim, head_dim**-0.5)
    layout, gpu = KvLayout(_PAGE, "float16", kv_heads, head_dim, _STEP, 0), _gpu(arch)

    def body(q: Any, pages: Any, words: Any, most: Any, out: Any) -> None:
        attention._prefill(gpu, PagedSequences(shape, layout, words), most, q, [pages], out, None)

    out = activations(gpu, "n", heads, head_dim)
    made = kernel(body, **arguments(gpu, shape, layout), sequences=SIZE, out=out)
    (found,) = counts_of(made.with_attr("global_symbol", "attend"), arch)
    return replace(found, kernel=f"attend, {heads} heads")


def latents(arch: str = "sm_90", heads: int = 128) -> Count:
    """Of latent attention of DeepSeek's widths. Raises TargetError."""
    shape, gpu = MlaShape(heads, 128, 64, 512, 128, 192**-0.5, 1e-6), _gpu(arch)
    (pages,) = shape.cache_spec(_PAGE, "float16").tensors
    layout = MlaLayout(shape, pages, _STEP, 0)

    def body(q: Any, pages: Any, words: Any, most: Any, out: Any) -> None:
        latent._prompts(gpu, layout, latent._sequences(layout, words), q, pages, most, out)

    out = activations(gpu, "n", heads, shape.rank)
    made = kernel(body, **latent._arguments(gpu, layout), sequences=SIZE, out=out)
    (found,) = counts_of(made.with_attr("global_symbol", "attend_latents"), arch)
    return replace(found, kernel=f"attend_latents, {heads} heads")


def _gpu(arch: str) -> Gpu:
    return Gpu.of(get_target("cuda", Choices(archs=(arch,))))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--arch", default="sm_90")
    arch = parser.parse_args().arch
    print(table([plain(arch), *(latents(arch, heads) for heads in (128, 16))]))


if __name__ == "__main__":
    main()
