"""Counts the machine code of linear layers, scheme by scheme, without a model or a GPU.

    python -m benchmarks.gpu.count_linear int4_g32 t4_g32 [--order rows|fragments|both]

The table is of the inner loops, as `count.py` counts them: instructions of one thread by weight.
Fragments is the order in which the target `cuda` stores a scheme that has one, rows that of all
other GPUs. `--arch sm_90a` has the kernel of 128 rows by warp groups. Of peak: what the issue slots
allow of an H100's tensor cores, were nothing else in the way.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import Any

from benchmarks.gpu.count import Count, disassembled, table
from mlcc_compiler.cuda import build as cuda_build
from mlcc_compiler.ir._tvm import tvm
from mlcc_compiler.kernels.gpu.device import Gpu
from mlcc_compiler.kernels.gpu.linear.fragments.fp8_rows import row_of
from mlcc_compiler.kernels.gpu.linear.fragments.order import STRETCH
from mlcc_compiler.kernels.gpu.linear.linear import linear_part
from mlcc_compiler.kernels.gpu.linear.split_weights import packing
from mlcc_compiler.kernels.tir_pipeline import GPU_PIPELINE
from mlcc_compiler.pipeline import tvm_target_of
from mlcc_targets import Choices, get_target

N, K = 14336, 4096
"""Of an 8B model's gate."""


def counts(
    scheme: str,
    *,
    fragments: bool,
    n: int = N,
    k: int = K,
    arch: str = "sm_90",
    fp8: bool = False,
) -> list[Count]:
    """The kernels of a linear layer [n, k]. fp8: activations of 8 bits. Raises TargetError."""
    row = get_target("cuda", Choices(archs=(arch,)))
    gpu = replace(Gpu.of(row), fragments=fragments, fp8=fp8)
    form = packing(gpu, (n, k), scheme)
    kernel = linear_part(gpu, form, 0, False)
    found = counts_of(kernel.with_attr("global_symbol", "linear"), arch)
    if row_of(gpu, form):
        return [replace(of, weights=of.of_tensor / of.rows) for of in found]
    if (
        form.fragments and form.group < STRETCH and not form.scheme.is_nvfp4
    ):  # few rows are multiplied once for each group
        found[0] = replace(found[0], weights=found[0].weights * form.group / STRETCH)
    return found


def counts_of(kernel: Any, arch: str = "sm_90") -> list[Count]:
    """The kernels of a function of TVM's. Raises TargetError."""
    return disassembled(binary_of(kernel, arch), arch, "the layer")


def binary_of(kernel: Any, arch: str = "sm_90") -> bytes:
    """The fat binary of a function of TVM's. Raises TargetError."""
    row = get_target("cuda", Choices(archs=(arch,)))
    target = tvm_target_of(row)
    with cuda_build.cuda_code_in(row) as made, target:
        tvm.compile(tvm.IRModule({"linear": kernel}), target, tir_pipeline=GPU_PIPELINE)
    return made[0].binary


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("schemes", nargs="+", metavar="SCHEME")
    parser.add_argument("--order", choices=("rows", "fragments", "both"), default="both")
    parser.add_argument("--arch", default="sm_90")
    parser.add_argument("--activations", choices=("8", "16"), default="16")
    parser.add_argument("--size", type=int, nargs=2, default=(N, K), metavar=("N", "K"))
    given = parser.parse_args()
    orders = ("rows", "fragments") if given.order == "both" else (given.order,)
    n, k = given.size
    for scheme in given.schemes:
        for order in orders:
            of = {"fragments": order == "fragments", "fp8": given.activations == "8"}
            found = counts(scheme, n=n, k=k, arch=given.arch, **of)
            print(f"{scheme}, {order}, N = {n}, K = {k}, {given.arch}\n\n{table(found)}\n")


if __name__ == "__main__":
    main()
