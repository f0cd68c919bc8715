"""The native executor: runs a compiled library through TVM's virtual machine.

The only file of the runtime that imports tvm, and in runtime mode (no compiler is loaded) unless
the process already has the compiler. It knows tensors and functions, not requests or pages.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from mlcc.engine.batch import Batch, Capacity, Result
from mlcc.errors import CapacityError, DeviceError, InvalidRequestError

Array = npt.NDArray[Any]
ALIGNMENT = 64
"""Bytes; generated code loads vectors from arguments with aligned instructions."""
KvSpec = tuple[Sequence[int], str]
"""Shape after the leading num_pages, and dtype, of one layer's pages."""


def set_threads(threads: int | None) -> int:
    """Fix the number of kernel threads; must be called before anything imports tvm.

    Default: TVM_NUM_THREADS, else the cores this process may use (TVM's own default can be 1).
    Returns the number.
    Raises InvalidRequestError for more than that: waiting threads spin, and starve each other.
    """
    cores = _usable_cores()
    count = threads or min(cores, int(os.environ.get("TVM_NUM_THREADS") or cores))
    if count > cores:
        raise InvalidRequestError(
            f"--threads {count} is more than the {cores} cores this process may use; "
            f"use --threads {cores} or less"
        )
    os.environ["TVM_NUM_THREADS"] = str(count)
    return count


def _usable_cores() -> int:
    """Cores of this process's affinity, within the container's CPU quota."""
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity else os.cpu_count() or 1
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        return max(1, min(cores, int(quota) // int(period)))
    except (OSError, ValueError):  # no such file, or "max"
        return cores


def _import_tvm() -> Any:
    if "tvm" not in sys.modules:
        os.environ.setdefault("TVM_USE_RUNTIME_LIB", "1")
    if "TVM_NUM_THREADS" not in os.environ:
        set_threads(None)
    import tvm
    import tvm.runtime.vm

    return tvm


class NativeExecutor:
    """Steps of a library on one device. `submit` runs at once on CPU; `collect` hands it over.

    weights: arrays in the order of the manifest, kept alive and read in place (mmap is fine).
    Raises DeviceError if the library does not load, CapacityError if the pages do not fit.
    """

    def __init__(
        self,
        library: Path,
        weights: Sequence[Array],
        kv: Sequence[KvSpec],
        capacity: Capacity,
    ) -> None:
        self.capacity = capacity
        self._tvm = _import_tvm()
        self._device = self._tvm.cpu()
        self._load(library)
        self._arrays = list(weights)
        self._weights = self._tvm.runtime.convert([self._share(w) for w in self._arrays])
        self._kv = self._tvm.runtime.convert([self._pages(shape, dtype) for shape, dtype in kv])
        self._last_sampled = self._share(np.zeros(1, np.int32))
        self._buffers: dict[int, Array] = {}
        self._results: dict[int, Result] = {}
        self._next_ticket = 0

    def _load(self, library: Path) -> None:
        try:
            module = self._tvm.runtime.load_module(str(library))
            self._machine = self._tvm.runtime.vm.VirtualMachine(module, self._device)
            self._forward, self._sample = self._machine["forward"], self._machine["sample"]
        except (OSError, RuntimeError, AttributeError, ValueError) as error:
            raise DeviceError(
                f"cannot load {library.name}: {str(error).splitlines()[-1]}; compile the model "
                "again with this version of mlcc"
            ) from error

    def _share(self, array: Array) -> Any:
        """A tensor over the array's own memory if it is aligned, else an aligned copy.

        Kernels assume ALIGNMENT; the compiler lays weights out so that only odd vectors are copied.
        """
        if array.ctypes.data % ALIGNMENT:
            return self._tvm.runtime.tensor(array)
        return self._tvm.runtime.from_dlpack(array)

    def _pages(self, shape: Sequence[int], dtype: str) -> Any:
        full = (self.capacity.num_pages, *shape)
        try:
            return self._tvm.runtime.empty(full, dtype, self._device)
        except (RuntimeError, MemoryError) as error:
            raise CapacityError(
                f"no memory for {self.capacity.num_pages} KV pages; use a smaller --context or "
                "--max-batch"
            ) from error

    def submit(self, batch: Batch) -> int:
        """Run a batch. Raises DeviceError with the kernel's message if it fails."""
        logits = self._run_forward(batch)
        sampling = (batch.temperature, batch.top_k, batch.top_p, batch.min_p, batch.uniforms)
        tokens, logprobs = self._call(self._sample, logits, *self._inputs(sampling, first=8))
        self._last_sampled = tokens
        ticket = self._next_ticket
        self._next_ticket += 1
        self._results[ticket] = Result(_values(tokens), _values(logprobs))
        return ticket

    def collect(self, ticket: int) -> Result:
        """The result of a ticket. Raises KeyError if it was collected before."""
        return self._results.pop(ticket)

    def logits(self, batch: Batch) -> npt.NDArray[np.float32]:
        """Run a batch and return its logits f32[r, vocab] instead of sampling: for evaluation."""
        result: npt.NDArray[np.float32] = self._run_forward(batch).numpy()
        return result

    def _run_forward(self, batch: Batch) -> Any:
        arrays = (
            batch.token_ids,
            batch.positions,
            batch.logit_rows,
            batch.token_slots,
            batch.qo_indptr,
            batch.page_indptr,
            batch.page_indices,
            batch.last_page_len,
        )
        inputs = self._inputs(arrays)
        return self._call(self._forward, *inputs, self._last_sampled, self._kv, self._weights)

    @staticmethod
    def _call(function: Any, *arguments: Any) -> Any:
        try:
            return function(*arguments)
        except RuntimeError as error:
            raise DeviceError(f"the device failed: {str(error).splitlines()[-1]}") from error

    def _inputs(self, arrays: Sequence[Any], first: int = 0) -> list[Any]:
        """Batch arrays as tensors over aligned buffers that every step uses again: 1 us each."""
        return [self._stage(first + i, values) for i, values in enumerate(arrays)]

    def _stage(self, place: int, values: Any) -> Any:
        count = len(values)
        buffer = self._buffers.get(place)
        if buffer is None or len(buffer) < count:
            buffer = self._buffers[place] = _aligned(2 * count, values.typecode)
        view = buffer[:count]
        view[:] = np.frombuffer(values, dtype=values.typecode)
        return self._tvm.runtime.from_dlpack(view)

    def close(self) -> None:
        """Free pages, weights and library."""
        self._weights = self._kv = self._forward = self._sample = self._machine = None
        self._arrays = []


def _aligned(count: int, dtype: str) -> Array:
    """`count` elements that begin at a multiple of ALIGNMENT."""
    size = max(1, count) * np.dtype(dtype).itemsize
    raw = np.zeros(size + ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT
    return raw[start : start + size].view(dtype)


def _values(tensor: Any) -> list[Any]:
    """A small tensor's elements as Python numbers."""
    values: list[Any] = np.from_dlpack(tensor).tolist()
    return values
