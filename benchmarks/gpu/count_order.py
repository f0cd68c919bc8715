"""Counts the kernels that sort tokens by expert, by their machine code: before a GPU runs them.

    python -m benchmarks.gpu.count_order [--experts 128] [--chosen 8] [--arch sm_90]

Instructions are those that the slowest warp issues one after the other: its loops over entries, by
how often they run, and once all that is outside of them.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from typing import Any

from benchmarks.gpu.count import Kernel, machine_code
from benchmarks.gpu.count_linear import binary_of
from mlcc_compiler.kernels.gpu.device import Gpu
from mlcc_compiler.kernels.gpu.moe import experts as of_experts
from mlcc_compiler.kernels.gpu.moe.sort_over_grid import AHEAD, THREADS, expert_order_over_grid
from mlcc_compiler.kernels.gpu.moe.sort_tokens import expert_order
from mlcc_targets import Choices, get_target

TOKENS = (1, 64, 4096)


def count(gpu: Gpu, experts: int, chosen: int, arch: str) -> Iterator[tuple[str, int, list[int]]]:
    """(name, workgroups, instructions for each of TOKENS) of both kernels. Raises TargetError."""
    ways: list[tuple[Callable[..., Any], int, int, int]] = [
        (expert_order, 1, 1, 1),  # each thread reads all entries
        (expert_order_over_grid, experts, THREADS, AHEAD),
    ]
    for factory, workgroups, threads, ahead in ways:
        made = factory(gpu, experts, chosen, of_experts.heights(gpu))
        binary = binary_of(made.with_attr("global_symbol", "order"), arch)
        (((found,), _),) = machine_code(binary, arch, factory.__name__)
        outside, of_entry = _parts(found)
        steps = [-(-tokens * chosen // (threads * ahead)) * ahead for tokens in TOKENS]
        yield factory.__name__, workgroups, [outside + round(of_entry * n) for n in steps]


def _parts(kernel: Kernel) -> tuple[int, float]:
    """Instructions outside of loops over entries, and of both loops for one entry of a lane. An
    entry is a load; of an unrolled loop and its remainder the unrolled one counts."""
    bodies = [kernel.instructions[loop.start : loop.stop] for loop in kernel.loops()]
    loops = [(len(body), sum(i.base == "LDG" for i in body)) for body in bodies]
    over = [(size, loads) for size, loads in loops if loads]
    passes = _unrolled(over)
    return len(kernel.instructions) - sum(size for size, _ in over), sum(passes)


def _unrolled(loops: list[tuple[int, int]]) -> list[float]:
    """Instructions an entry of each pass: a loop of fewer loads than the one before is its
    remainder."""
    before = [0, *(loads for _, loads in loops)]
    pairs = zip(loops, before, strict=False)
    return [size / loads for (size, loads), last in pairs if loads >= last]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--experts", type=int, default=128)
    parser.add_argument("--chosen", type=int, default=8)
    parser.add_argument("--arch", default="sm_90")
    given = parser.parse_args()
    gpu = Gpu.of(get_target("cuda", Choices(archs=(given.arch,))))
    print("| kernel | workgroups | " + " | ".join(f"{n} tokens" for n in TOKENS) + " |")
    print("|---|" + "--:|" * (1 + len(TOKENS)))
    for name, workgroups, instructions in count(gpu, given.experts, given.chosen, given.arch):
        cells = [f"`{name}`", str(workgroups), *map(str, instructions)]
        print("| " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
