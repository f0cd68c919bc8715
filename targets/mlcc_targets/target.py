"""`Target`: a row of data, and a function that links objects into a library.

Kernels and passes read the row's fields, never its name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

Link = Callable[[Sequence[Path], Path], None]
"""(object files, library to write) -> None. Raises TargetError."""
Prepare = Callable[[Callable[[str], None]], object]
"""(callback for progress messages) -> anything. Raises TargetError."""
Mark = Callable[[Path, str], None]
"""(library, hash of its ABI) -> None."""


class TargetError(Exception):
    """A target that cannot be used here; the message says why and what to type."""


@dataclass(frozen=True, kw_only=True)
class Choices:
    """A user's choices for a row, which refuses those that it does not offer (`get_target`)."""

    cpu: str = "host"
    """Level of the CPU, for kernels on CPUs; 'any' = a library for each level."""
    systems: tuple[str, ...] = ()
    """Systems of libraries: linux, windows, macos, and for CPUs ios, ios-simulator; empty = this
    machine's."""
    archs: tuple[str, ...] = ()
    """GPU architectures of the library, such as sm_80."""
    f16: bool | None = None
    """Compute in float16; None = the row's default."""
    abis: tuple[str, ...] = ()
    """Android ABIs; empty = the row's default."""
    webgpu_limits: bool = False
    """Assume no more of a GPU than WebGPU guarantees, where the row assumes more."""
    subgroup_matrices: int = 0
    """Edge of the matrices that a browser's subgroups multiply: 8 or 16; 0 = none."""
    gpu: bool = False
    """Compile for the device's GPU, if the row's default is its CPU."""


def not_built(objects: Sequence[Path], library: Path) -> None:
    """The `link` of a row whose build is not implemented."""
    raise TargetError(f"linking {library.name} is not built yet for this target; use --target cpu")


@dataclass(frozen=True, kw_only=True)
class Target:
    """One row. `missing`: why the target cannot be compiled yet; empty = it can."""

    name: str
    device: str
    """Where the library runs: cpu, cuda, vulkan, metal, webgpu, numpy."""
    kernels: str = ""
    """Which kernel set lowers the operators: 'cpu', 'gpu', or '' for none."""
    generator: str = ""
    """TVM's generator of the device's code: cuda, metal, webgpu; empty = only host code."""
    archs: tuple[str, ...] = ()
    """GPU architectures in the library."""
    arch: str = ""
    """Instruction set of the host code: x86_64, aarch64, wasm32."""
    triple: str = ""
    """LLVM triple of the host code; empty = this machine's."""
    cpu: str = ""
    """LLVM's name of the CPU model or level."""
    features: tuple[str, ...] = ()
    """CPU features the library needs, in LLVM's spelling."""
    vector_bits: int = 128
    """Width of the vector registers kernels are written for."""
    tile_columns: int = 0
    """Columns of a tile of a matrix for CPU kernels; 0 = from the width of its registers. All
    libraries of a folder have the same."""
    signed_codes: bool | None = None
    """Whether CPU kernels read 8-bit codes minus 128; None = as its instructions need them."""
    page_form: str = "rows"
    """Layout of keys and values in pages: one of the manifest's `caches[].form`."""
    library: str = "model.so"
    """File name of the library in the artifact."""
    extra_files: tuple[str, ...] = ()
    """Names of files that `link` writes beside the library."""
    symbol_prefix: str = ""
    """For static libraries: the prefix of symbols; a compile adds the model's name."""
    abis: tuple[str, ...] = ()
    """Android ABIs of this library and its alternatives."""
    systems: tuple[str, ...] = ()
    """The system of this library, if the row has a choice."""
    limits: Mapping[str, int] = field(default_factory=dict)
    """Limits of the device that kernels must respect: workgroup_invocations, workgroup_bytes,
    storage_binding_bytes, row_slices (most slices of a row of logits for sampling), and, if
    available, subgroup (threads), least_subgroup (threads, where subgroups may be larger),
    narrow_types (1: the language has 8-bit integers and pairs of f16), subgroup_matrix (edge of
    the matrices of a browser's subgroups), and mma (1: NVIDIA's instruction mma.m16n8k16, for which
    weights are stored in an order of their own)."""
    matrix_unit: str = ""
    """Half-precision matrix instructions of the device's language: 'wmma' (CUDA's warps),
    'simdgroup' (Metal's SIMD-groups), 'subgroup_matrix8x8' or '16x16' (Chromium's WGSL), '' for
    none."""
    packed_dot: bool = False
    """Whether the device's language multiplies packed 8-bit integers (WGSL's `dot4I8Packed`), which
    `--activations 8` makes use of."""
    webgpu_limits: bool | None = None
    """Whether no more is assumed than WebGPU guarantees; None = the row has no choice."""
    f16: bool = False
    """The device computes in float16."""
    activation_dtype: str = "float32"
    """dtype of activations between operators on this device. Sums, softmax, states and logits are
    float32 in any case."""
    max_batch: int = 8
    """Default of the compiled bound of sequences per step: for a laptop."""
    max_step_tokens: int = 512
    """Likewise tokens per step. Both are upper bounds: less may be chosen at load."""
    graphs: bool = False
    """A decode step is captured once and replayed as one launch (CUDA graphs)."""
    link: Link = not_built
    archive: Link | None = None
    """Collects objects in a static library, for targets whose programs may link one."""
    prepare: Prepare = lambda say: None
    """Builds what `link` needs once per machine; called before a compile starts."""
    mark: Mark = lambda library, abi: None
    """Writes the ABI into the library, if a loader cannot read it in another way."""
    alternatives: tuple[Target, ...] = ()
    """Rows of libraries that a compile adds for devices that lack a required feature. They share
    the weights; each has its own `library` and `variant`."""
    variant: str = ""
    """Names the manifest of an alternative: mlcc.VARIANT.json."""
    opened_by: str = ""
    """The command that opens a library, if not `mlcc chat`, as in "open it: COMMAND"."""
    missing: str = ""
    run_missing: str = ""
    """Why a library for this target cannot run on this machine; empty = it can."""
