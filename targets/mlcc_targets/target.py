"""What a target is: a row of data, and a function that links objects into a library.

Nothing here decides anything: kernels and passes read the row's fields, never its name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

Link = Callable[[Sequence[Path], Path], None]
"""(object files, library to write) -> None. Raises TargetError."""
Prepare = Callable[[Callable[[str], None]], object]
"""(where to say what takes time) -> anything. Raises TargetError."""
Mark = Callable[[Path, str], None]
"""(library, hash of its ABI) -> None."""


class TargetError(Exception):
    """A target that cannot be used here; the message says why and what to type."""


@dataclass(frozen=True, kw_only=True)
class Choices:
    """What a user may choose of a row; a row refuses what it cannot offer (see `get_target`)."""

    cpu: str = "host"
    """Level of the host's CPU, where kernels run on it; or 'any' for a library of each level."""
    archs: tuple[str, ...] = ()
    """Architectures of the device that one library serves, as in sm_80."""
    f16: bool | None = None
    """Compute in float16; None = the row's default."""
    abis: tuple[str, ...] = ()
    """Android's names of instruction sets; empty = the row's default."""
    gpu: bool = False
    """For the device's GPU, where the row's default is its CPU."""


def not_built(objects: Sequence[Path], library: Path) -> None:
    """The `link` of a row whose build is still to come."""
    raise TargetError(f"linking {library.name} is not built yet for this target; use --target cpu")


@dataclass(frozen=True, kw_only=True)
class Target:
    """One row. `missing` says why the target cannot be compiled for yet; empty = it can."""

    name: str
    device: str
    """Where the library runs: cpu, cuda, vulkan, metal, webgpu, numpy."""
    kernels: str = ""
    """Which kernel set lowers the operators: 'cpu', 'gpu', or '' for none."""
    generator: str = ""
    """TVM's generator of the device's code: cuda, metal, webgpu; empty = only host code."""
    archs: tuple[str, ...] = ()
    """Architectures of the device in the library."""
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
    """Columns of a tile of a matrix that a CPU's kernels read; 0 = as its registers would have it.
    Libraries of one folder have the same, whatever their registers."""
    signed_codes: bool | None = None
    """Whether a CPU's kernels read 8-bit codes less 128; None = as its instructions would."""
    page_form: str = "rows"
    """How kernels lay keys and values in pages: one of the manifest's `caches[].form`."""
    library: str = "model.so"
    """File name of the library in the artifact."""
    extra_files: tuple[str, ...] = ()
    """Names of files that `link` writes beside the library."""
    symbol_prefix: str = ""
    """Where the library is static: what its symbols begin with; a compile adds the model's name."""
    abis: tuple[str, ...] = ()
    """Android's names of the instruction sets of this library and its alternatives."""
    limits: Mapping[str, int] = field(default_factory=dict)
    """Limits of the device that kernels must respect: workgroup_invocations, workgroup_bytes,
    storage_binding_bytes, row_slices (the most that a row of logits is cut in for sampling), and,
    where there are any, subgroup (threads), narrow_types (1: the language has 8-bit integers and
    pairs of f16) and tensor_cores (1)."""
    f16: bool = False
    """The device computes in float16."""
    activation_dtype: str = "float32"
    """What a model's operators hand to one another on this device. Not of what needs float32
    whatever it is: sums, softmax, states, the logits."""
    max_batch: int = 8
    """Sequences of a step that a library is compiled for, unless told otherwise: a laptop's."""
    max_step_tokens: int = 512
    """Likewise tokens of a step. Both are upper bounds: fewer may be chosen when it is loaded."""
    graphs: bool = False
    """A decode step is captured once and replayed as one launch (CUDA graphs)."""
    link: Link = not_built
    archive: Link | None = None
    """Collects objects in a static library, where a program may link one beside `library`."""
    prepare: Prepare = lambda say: None
    """What `link` needs to be made once a machine; called before a compile begins its work."""
    mark: Mark = lambda library, abi: None
    """Writes the ABI into the library, where whoever loads it cannot ask it otherwise."""
    alternatives: tuple[Target, ...] = ()
    """Rows of libraries that a compile puts beside this one, for devices that lack what it needs.
    They read the same weights; each has its own `library` and `variant`."""
    variant: str = ""
    """What the manifest of an alternative is called after: mlcc.VARIANT.json."""
    opened_by: str = ""
    """Where that is not `mlcc chat`: what a library is opened by, as "open it: COMMAND"."""
    missing: str = ""
    run_missing: str = ""
    """Why a library for this target cannot be run yet, wherever it is; empty = it can."""
