"""Loads libmlcc_executor as a Python module and declares its types.

One file is both an extension module for Python's stable ABI and a C library (runtime/native).
`include/executor.h` documents the functions; `mlcc/device/compiled/executor.py` implements the
`Executor` protocol with them, `mlcc/model/tokenizer/native.py` a tokenizer. Standard library only.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import cache
from importlib import import_module
from importlib.machinery import ExtensionFileLoader, ModuleSpec
from importlib.util import module_from_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

from mlcc.errors import DeviceError

if TYPE_CHECKING:
    from typing_extensions import Buffer

ABI = 6
"""MLCC_EXECUTOR_ABI."""
MODULE = "libmlcc_executor"
"""Name of the module and of its init function, wherever the file is."""
_FOLDER = Path(__file__).resolve().parents[1] / "device" / "lib"
_SUFFIX = {"darwin": "dylib", "win32": "pyd"}.get(sys.platform, "so")
LIBRARY = _FOLDER / f"{MODULE}.{_SUFFIX}"

OK, ARGUMENT, NO_LIBRARY, INTERFACE, WEIGHTS, DEVICE, MEMORY, STATE, UNSUPPORTED, LOST = range(10)
RANK = 10
"""mlcc_executor_status."""
DEVICES = {"cpu": 0, "webgpu": 1}
"""mlcc_device_kind."""
KINDS = {"paged": 0, "window": 1, "state": 2, "embeddings": 3}
"""mlcc_group_kind."""

Table: TypeAlias = tuple[int, int]
"""mlcc_table: offset in words, and capacity in entries."""
Layout: TypeAlias = tuple[Table, Table, Table, Table, Table, Table, int]
"""mlcc_step_layout."""
Bounds: TypeAlias = tuple[int, int, int, int, int, int, int]
"""mlcc_bounds."""
Weight: TypeAlias = tuple[bytes, int, bytes, tuple[int, ...], int]
"""mlcc_weight: path, offset, dtype, shape, matrices."""
Group: TypeAlias = tuple[int, int, int, int]
"""mlcc_group."""
Cache: TypeAlias = tuple[int, bytes, tuple[int, ...]]
"""mlcc_cache: group, dtype, shape."""

Adapters: TypeAlias = tuple[int, int, tuple[tuple[int, int], ...]]
"""Slots, rank, and of each mlcc_adapter_tensor rows and columns."""
Ranks: TypeAlias = tuple[int, int, int, tuple[int, ...]]
"""mlcc_ranks: rank, count, memory, peers."""
ALONE: Ranks = (0, 0, -1, ())
Matrix: TypeAlias = tuple[int, int, int, int, int, int, bytes, bytes, float]
"""mlcc_adapter_matrix: tensor, transposed, row, column, rows, columns, dtype, data, scale."""


class Use(NamedTuple):
    """mlcc_use."""

    workspace: int
    """Bytes."""
    replays: int
    nanoseconds: int


class OpenExecutor(Protocol):
    """An mlcc_executor. Failures raise the module's `Failed`."""

    def step(self, words: int, /) -> Buffer:
        """The memory of the next step; a view of it keeps the executor alive."""
        ...

    def adjustments(self, words: int, /) -> Buffer:
        """The memory of the next step's adjustments."""
        ...

    def adapter(self, slot: int, matrices: tuple[Matrix, ...], /) -> None: ...

    def submit(self, adjusted: bool, /) -> int:
        """The ticket."""
        ...

    def collect(self, ticket: int, /) -> tuple[list[int], list[float], list[int], list[float]]:
        """Tokens, log-probabilities; the top ones' if a row wanted any, else nothing."""
        ...

    def follow(self) -> None:
        """Run the steps of rank 0 until it closes."""
        ...

    def logits(self, count: int, /) -> bytearray:
        """`count` floats."""
        ...

    def alignment(self, count: int, /) -> bytearray:
        """Run the step in the buffer; `count` floats of the weights of the alignment heads."""
        ...

    def likelihood(self, targets: tuple[int, ...], /) -> float: ...

    def read_pages(self, group: int, ids: tuple[int, ...], size: int, /) -> bytearray:
        """The contents of pages, `size` bytes."""
        ...

    def write_pages(self, group: int, ids: tuple[int, ...], data: bytes, /) -> None: ...

    def use(self) -> tuple[int, int, int]: ...

    def watch(self, on: bool, /) -> None: ...

    def kernels(self) -> list[tuple[str, str, int, int, int]]: ...

    def copy(self, count: int, /) -> int:
        """Nanoseconds."""
        ...

    def counts(self) -> str: ...

    def close(self) -> None: ...


class OpenTokenizer(Protocol):
    """A tokenizer of `runtime/native/src/tokenizer`. Failures raise the module's `Failed`."""

    def encode(self, text: str, add_special: bool, /) -> bytearray:
        """int32."""
        ...

    def decode(self, ids: Sequence[int], skip_special: bool, /) -> str: ...

    def piece(self, token: int, /) -> str | None: ...

    def added(self) -> list[tuple[int, str, int]]:
        """Ids and texts of the added tokens, and whether they are special."""
        ...


class Module(Protocol):
    """The extension module; `executor.h` documents its functions."""

    abi: int
    Failed: type[Exception]
    """Its arguments are an mlcc_executor_status and the text."""

    def open(
        self,
        library: bytes,
        interface: str | None,
        threads: int,
        device: int,
        device_index: int,
        functions: tuple[bytes, ...],
        weights: tuple[Weight, ...],
        groups: tuple[Group, ...],
        caches: tuple[Cache, ...],
        layout: Layout,
        bounds: Bounds,
        progress: Callable[[int], None],
        adapters: Adapters,
        ranks: Ranks,
        token_columns: int,
        /,
    ) -> OpenExecutor: ...

    def linked(self, prefix: str, /) -> int: ...

    def tokenizer(self, json: bytes, /) -> OpenTokenizer: ...

    def log_mel(
        self, samples: bytes, frames: int, bins: int, largest: float, wanted: bool, /
    ) -> tuple[bytearray, float]:
        """Frames of float32 samples, if wanted, and the largest log10 so far."""
        ...

    def usm_log_mel(self, samples: bytes, frames: int, bins: int, /) -> bytearray:
        """Frames of float32 samples, as Gemma 4's audio tower reads them."""
        ...

    def gemma3n_log_mel(self, samples: bytes, frames: int, bins: int, /) -> bytearray:
        """Frames of float32 samples, as Gemma 3n's audio tower reads them."""
        ...

    def token_rows(
        self, weights: bytes, tokens: int, heads: int, rows: int, used: int, /
    ) -> tuple[int, ...]:
        """The row at which each token begins."""
        ...

    def resample(self, samples: bytes, from_rate: int, to_rate: int, /) -> bytearray:
        """float32 samples at another rate."""
        ...

    def flac_stream(self, data: bytes, /) -> tuple[int, int, int, int]:
        """Of a file: samples a second, channels, samples of each (0 = unknown), and the byte of the
        first frame."""
        ...

    def flac(self, data: bytes, place: int, most: int, /) -> tuple[bytearray, int]:
        """float32 samples of the frames from byte `place` on, until there are `most` or more, and
        the byte behind them."""
        ...

    def resize(
        self, pixels: bytes, width: int, height: int, filter: int, to_width: int, to_height: int, /
    ) -> bytearray:
        """RGB of another size. filter: Pillow's number."""
        ...

    def resize_rows(
        self, rows: bytes, lines: int, columns: int, to_lines: int, to_columns: int, /
    ) -> bytearray:
        """float32 rows of another grid, bilinear."""
        ...

    def webgpu(self, path: bytes, why_absent: str, /) -> None: ...

    def webgpu_devices(self) -> str: ...

    def webgpu_close(self, device_index: int, /) -> None: ...


LINKED = "linked:"
"""Prefix of a library path that names a model linked into the program."""


def is_linked() -> bool:
    """Whether the program has the library inside, as apps for iOS do."""
    return MODULE in sys.builtin_module_names


def look_in(folder: Path) -> None:
    """Use the library in `folder`, for programs that bundle it."""
    global LIBRARY
    LIBRARY = folder / LIBRARY.name


def why_absent() -> str:
    """Why the library is missing, in one line that says what to do; "" if it is there."""
    if is_linked() or LIBRARY.exists():
        return ""
    try:
        return LIBRARY.with_name("absent.txt").read_text(encoding="utf-8").strip()
    except OSError:
        return "the executor was not built; run: python runtime/native/build_executor.py"


@cache
def load() -> Module:
    """The library as a module. Raises DeviceError if it is missing, does not load, has another ABI,
    or does not support this Python."""
    if reason := why_absent():
        raise DeviceError(reason)
    if "t" in getattr(sys, "abiflags", ""):
        raise DeviceError(
            f"{LIBRARY.name} is for Python with its lock, and this is a free-threaded one "
            f"({sys.executable}); use the usual build of Python {sys.version_info[0]}."
            f"{sys.version_info[1]}"
        )
    try:
        found = _imported()
    except ImportError as error:
        raise DeviceError(f"{LIBRARY}: {error}; install mlcc again") from error
    if found.abi != ABI:
        raise DeviceError(f"{LIBRARY} is of another version of mlcc; install mlcc again")
    module: Module = found
    return module


def _imported() -> Any:
    if is_linked():
        return import_module(MODULE)
    loader = ExtensionFileLoader(MODULE, str(LIBRARY))
    found = module_from_spec(ModuleSpec(MODULE, loader, origin=str(LIBRARY)))
    loader.exec_module(found)
    return found
