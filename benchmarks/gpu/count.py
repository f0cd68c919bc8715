"""Counts the machine code of CUDA kernels: what their inner loops cost, before a GPU runs them.

    pip install nvidia-cuda-nvdisasm nvidia-cuda-cuobjdump
    python -m benchmarks.gpu.count LIBRARY [--arch sm_90] [--kernels REGEX] [--json]

LIBRARY is a compiled model's `model.so`. A kernel's inner loop is the one of most multiply-adds; a
product is one multiply-add of one thread. A linear layer has a kernel for each number of rows
(`_1`, `_2`, ...), so the weights that an iteration reads are its products by rows, without those
that unpack them. Counted are instructions, not cycles; `kernel_times.py` measures times.
`count_linear.py` counts linear layers of any scheme without a model.
Weights of few rows in groups of 16 (`q6_k`) are multiplied twice, which only that script takes into
account: here they seem to cost half as much.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from math import prod
from pathlib import Path

_MAGIC = bytes.fromhex("50ed55ba")
"""Of a fat binary."""
_TOOLS = {"cuobjdump": "nvidia-cuda-cuobjdump", "nvdisasm": "nvidia-cuda-nvdisasm"}
ROWS = (1, 2, 4, 8, 16, 32, 64, 128)
"""Rows of the kernels of a linear layer, by their number (kernels/gpu/linear/linear.py)."""
ROWS_OF_FRAGMENTS = (8, 16, 32, 64, 128)
"""The same, where the first multiplies by tensor cores (kernels/gpu/linear/fragments/gemv.py)."""
_PRODUCTS = {"FFMA": 1, "DFMA": 1, "HFMA2": 2, "IDP": 4}
"""Multiply-adds of a thread by an instruction."""
_TENSOR = ("HMMA", "HGMMA", "IMMA", "IGMMA", "QMMA", "QGMMA")
_THREADS = {"HMMA": 32, "IMMA": 32, "QMMA": 32}
"""Threads that share a tensor instruction; 128 if it is a warp group's."""
_CYCLE = 512 / 32
"""Multiply-adds of a thread in a cycle of a tensor core of sm_90, of which each scheduler has one:
989 TFLOP/s are 132 * 4 of 512 at 1.83 GHz (NVIDIA H100 Tensor Core GPU Architecture, 2022)."""
_OF_PEAK_BY_WARPS = 0.629
"""Of that, what `mma.sync` reaches on sm_90 (Luo et al., arXiv 2402.13499, 2024: measured)."""


@dataclass(frozen=True)
class Instruction:
    """One of a kernel. target: the label that it branches to."""

    op: str
    target: str = ""
    from_zero: bool = False
    """Whether what it adds to is 0, of a tensor instruction."""

    @property
    def base(self) -> str:
        """The operation without its modifiers: LDG of LDG.E.128."""
        return self.op.partition(".")[0]

    @property
    def products(self) -> int:
        """Multiply-adds of a thread."""
        if self.op.startswith("HFMA2.MMA"):
            return 0  # how a constant is loaded by the other pipe
        if self.base not in _TENSOR:
            return _PRODUCTS.get(self.base, 0)
        return _tile(self.op) // _THREADS.get(self.base, 128)


def _tile(op: str) -> int:
    """Multiply-adds of a tensor instruction: 16x8x16 of HMMA.16816, 64x128x16 as it is written."""
    if written := re.search(r"\d+x\d+x\d+", op):
        return prod(map(int, written[0].split("x")))
    found = re.search(r"\.(16)(8)(4|8|16|32)\b", op)
    return prod(map(int, found.groups())) if found else 0


@dataclass
class Kernel:
    """A kernel's instructions, and the position of each label among them."""

    name: str
    instructions: list[Instruction] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)

    def loops(self) -> Iterator[range]:
        """The positions of each loop: from a label to a branch back to it."""
        for i, instruction in enumerate(self.instructions):
            start = self.labels.get(instruction.target, i + 1)
            if instruction.base == "BRA" and start < i:
                yield range(start, i + 1)

    def inner_loop(self) -> Sequence[Instruction]:
        """The loop with most products among those that hold no other with some; all of the kernel
        if no loop has any."""
        found = [loop for loop in self.loops() if products_of(self.instructions[_slice(loop)])]
        inner = [
            a for a in found if not any(a != b and a[0] <= b[0] <= b[-1] <= a[-1] for b in found)
        ]
        bodies = [self.instructions[_slice(loop)] for loop in inner]
        return max(bodies, key=products_of, default=self.instructions)


def _slice(loop: range) -> slice:
    return slice(loop.start, loop.stop)


def products_of(instructions: Sequence[Instruction]) -> int:
    """Multiply-adds of a thread."""
    return sum(instruction.products for instruction in instructions)


_KERNEL = re.compile(r"\.text\.(\S+):")
_LABEL = re.compile(r"\s*(\.L_x_\d+):")
_INSTRUCTION = re.compile(r"\s*/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_.x]*)(.*)")


def parse_sass(text: str) -> list[Kernel]:
    """The kernels of nvdisasm's text."""
    kernels: list[Kernel] = []
    for line in text.splitlines():
        if match := _KERNEL.match(line):
            kernels.append(Kernel(match[1]))
        elif line.startswith((".section", "\t.section")):
            kernels.append(Kernel(""))  # data behind a kernel, not its code
        elif kernels and (match := _LABEL.match(line)):
            kernels[-1].labels[match[1]] = len(kernels[-1].instructions)
        elif kernels and (match := _INSTRUCTION.match(line)):
            target, zero = re.search(r"\((\.L_x_\d+)\)", match[2]), ", RZ ;" in match[2]
            made = Instruction(match[1], target[1] if target else "", zero)
            kernels[-1].instructions.append(made)
    return [kernel for kernel in kernels if kernel.name and kernel.instructions]


_USAGE = re.compile(r"Function (\S+):\s+REG:(\d+) STACK:(\d+) SHARED:(\d+)")


def parse_usage(text: str) -> dict[str, tuple[int, int, int]]:
    """Registers, bytes of stack a thread, and bytes of shared memory, by cuobjdump -res-usage."""
    found = _USAGE.finditer(text)
    return {match[1]: (int(match[2]), int(match[3]), int(match[4])) for match in found}


@dataclass(frozen=True)
class Count:
    """What is counted of a kernel."""

    kernel: str
    registers: int
    stack_bytes: int
    """A thread's: spilled registers and arrays."""
    shared_bytes: int
    """Declared; none that is asked for at launch."""
    instructions: int
    spills: int
    """Loads and stores of the stack."""
    loop: int
    """Instructions of the inner loop."""
    products: int
    """Of the inner loop."""
    tensor: int
    """Tensor instructions of the inner loop."""
    from_zero: int = 0
    """Those of them that add to 0."""
    of_tensor: int = 0
    """Products that are theirs."""
    by_warp_groups: bool = False
    """Whether they are warp groups' (`wgmma`)."""
    fp8: bool = False
    """Whether they multiply 8-bit floats."""
    rows: int = 0
    """Of a linear layer's kernel."""
    weights: float = 0.0
    """That a thread reads in an iteration of the inner loop of a linear layer."""

    @property
    def of_weight(self) -> float | None:
        """Instructions a weight."""
        return self.loop / self.weights if self.weights else None

    @property
    def of_product(self) -> float | None:
        """Instructions a multiply-add."""
        return self.loop / self.products if self.products else None

    @property
    def of_peak(self) -> float | None:
        """Of the tensor cores' peak on sm_90, which is twice as high for 8-bit floats, what issue
        slots and the kind of instruction allow: a scheduler starts an instruction a cycle."""
        if not self.of_tensor:
            return None
        most = 1.0 if self.by_warp_groups else _OF_PEAK_BY_WARPS
        cycle = 2 * _CYCLE if self.fp8 else _CYCLE
        return min(most, self.of_tensor / cycle / self.loop)


def count(kernels: Sequence[Kernel], usage: Mapping[str, tuple[int, int, int]]) -> list[Count]:
    """The counts of all kernels."""
    found = []
    for kernel in kernels:
        loop, ops = kernel.inner_loop(), Counter(i.base for i in kernel.instructions)
        found.append(
            Count(
                kernel.name,
                *usage.get(kernel.name, (0, 0, 0)),
                instructions=len(kernel.instructions),
                spills=ops["LDL"] + ops["STL"],
                loop=len(loop),
                products=products_of(loop),
                tensor=sum(i.base in _TENSOR for i in loop),
                of_tensor=products_of([i for i in loop if i.base in _TENSOR]),
                by_warp_groups=any(i.base in ("HGMMA", "QGMMA") for i in loop),
                fp8=any(i.base in ("QMMA", "QGMMA") for i in loop),
                from_zero=sum(i.base in _TENSOR and i.from_zero for i in loop),
            )
        )
    return with_weights(found)


_VARIANT = re.compile(r"(linear\w*?_kernel)(?:_(\d))?")


def with_weights(counts: Sequence[Count]) -> list[Count]:
    """Rows and weights for the kernels of linear layers.

    Without tensor cores a weight may also be unpacked by multiply-adds, which do not grow with the
    rows. How many shows in the kernels of 4 and of 8 rows. With them a group's sums may begin with
    two products of constants, the first of which adds to 0; where each second product does (8-bit
    floats), there are none.
    """
    by_name = {c.kernel: c for c in counts}
    found = []
    for c in counts:
        match = _VARIANT.fullmatch(c.kernel)
        first = by_name.get(match[1]) if match else None
        numbers = ROWS_OF_FRAGMENTS if first and first.tensor else ROWS
        if match is None or int(match[2] or 0) >= len(numbers):
            found.append(c)
            continue
        rows, unpacking = numbers[int(match[2] or 0)], 0.0
        if c is first and c.tensor:
            constants = 2 * c.from_zero if 2 * c.from_zero < c.tensor else 0
            weights = c.of_tensor * (1 - constants / c.tensor) / rows
            found.append(replace(c, rows=rows, weights=weights))
            continue
        if not c.tensor:
            four, eight = (by_name.get(f"{match[1]}_{number}") for number in (2, 3))
            if four and eight and eight.products > four.products:
                unpacking = max(0.0, 4 * four.products / (eight.products - four.products) - 4)
        found.append(replace(c, rows=rows, weights=c.products / (rows + unpacking)))
    return found


def table(counts: Sequence[Count]) -> str:
    """A Markdown table."""
    lines = [
        "| kernel | rows | registers | spills | shared | inner loop | tensor | of it | of peak "
        "| a product | a weight |",
        "|---|" + "--:|" * 10,
    ]
    for c in counts:
        cells = [
            f"`{c.kernel}`",
            str(c.rows or ""),
            str(c.registers),
            str(c.spills),
            str(c.shared_bytes),
            str(c.loop),
            str(c.tensor),
            f"{c.tensor / c.loop:.0%}" if c.tensor else "",
            "" if c.of_peak is None else f"{c.of_peak:.0%}",
            "" if c.of_product is None else f"{c.of_product:.2f}",
            "" if c.of_weight is None else f"{c.of_weight:.1f}",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


# -- NVIDIA's tools -------------------------------------------------------------------------------


def tool(name: str) -> str:
    """The path of one of NVIDIA's tools. Exits if it is not here."""
    from mlcc_targets.cuda_files import program

    if found := program(name) or _of_triton(name):
        return found
    packages = " ".join(sorted(_TOOLS.values()))
    sys.exit(f"{name} is not here; type `pip install {packages}`, or set $CUDA_HOME to a toolkit")


def _of_triton(name: str) -> str | None:
    """The copy in triton, which comes with torch."""
    spec = importlib.util.find_spec("triton")
    for place in (spec.submodule_search_locations or ()) if spec else ():
        if (path := Path(place) / "backends" / "nvidia" / "bin" / name).exists():
            return str(path)
    return None


def disassemble(library: Path, arch: str) -> list[Count]:
    """The counts of a library's kernels. Exits if it has none for the architecture."""
    return disassembled(library.read_bytes(), arch, str(library))


def disassembled(data: bytes, arch: str, library: str) -> list[Count]:
    """The same of a library's bytes, or of a fat binary's."""
    counts = [c for code in machine_code(data, arch, library) for c in count(*code)]
    return sorted(counts, key=lambda c: c.kernel)


def machine_code(
    data: bytes, arch: str, library: str
) -> list[tuple[list[Kernel], dict[str, tuple[int, int, int]]]]:
    """The kernels of each object in it for the architecture, with `parse_usage` of them."""
    at = data.find(_MAGIC)
    if at < 0:
        sys.exit(f"{library} holds no CUDA code; compile the model with --target cuda")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        header = int.from_bytes(data[at + 6 : at + 8], "little")
        size = int.from_bytes(data[at + 8 : at + 16], "little")
        (folder / "kernels.fatbin").write_bytes(data[at : at + header + size])
        _run([tool("cuobjdump"), "-xelf", "all", "kernels.fatbin"], folder)
        files = sorted(folder.glob("*.cubin"))
        cubins = [path for path in files if f".{arch}." in path.name]
        if not cubins:
            has = ", ".join(path.name.split(".")[-2] for path in files)
            sys.exit(f"{library} has no machine code for {arch}; --arch may be one of: {has}")
        found = []
        for path in cubins:
            usage = parse_usage(_run([tool("cuobjdump"), "-res-usage", path.name], folder))
            found.append((parse_sass(_run([tool("nvdisasm"), path.name], folder)), usage))
    return found


def _run(command: Sequence[str], folder: Path) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{Path(command[0]).name} failed: {done.stderr.strip()}")
    return done.stdout


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("library", type=Path)
    parser.add_argument("--arch", default="sm_90")
    parser.add_argument("--kernels", default="", metavar="REGEX", help="only those that match")
    parser.add_argument("--json", action="store_true", help="a JSON line for each kernel")
    given = parser.parse_args()
    counts = disassemble(given.library, given.arch)
    chosen = [c for c in counts if re.search(given.kernels, c.kernel)]
    if given.json:
        for c in chosen:
            print(json.dumps(asdict(c) | {"of_weight": c.of_weight, "of_product": c.of_product}))
    else:
        print(table(chosen))


if __name__ == "__main__":
    main()
