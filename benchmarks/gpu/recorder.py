"""Records kernel calls of the emulated device, for a real one to repeat: a plugin of pytest.

While a test of `tests/targets/cuda/test_emulated_kernels.py` passes, the arguments of every call
are kept as they were before and after it. At the end all recorded kernels are compiled for a GPU
into one library. `replay.py` repeats the calls there.

    MLCC_GPU_CALLS=FOLDER python -m pytest -p benchmarks.gpu.recorder tests/targets/cuda/...
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

MOST_BYTES = 2 << 20
"""Of the arguments of a recorded call, without the items that are like an argument's first or last
one: most of the scratch of a product is."""
EACH = 3
"""Recorded calls of a kernel."""


class KernelRecorder:
    """Calls of kernels, and the factories that make them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._factories: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {}
        self._calls: list[dict[str, Any]] = []
        self._pending: list[tuple[str, list[Any], list[Any]]] = []
        (folder / "calls").mkdir(parents=True)

    def watch(self, compiled: Callable[..., Any]) -> Callable[..., Any]:
        """`compiled(factory, arguments, ...)`, whose functions are recorded."""

        def watched(factory: Callable[..., Any], arguments: tuple[Any, ...], *more: Any) -> Any:
            function, key = compiled(factory, arguments, *more), _key(factory, arguments)
            self._factories[key] = factory, arguments

            def call(*given: Any) -> None:
                before = [_plain(a) for a in given]
                function(*given)
                self._pending.append((key, before, [_plain(a) for a in given]))

            return call

        return watched

    def forget(self) -> None:
        """Drop the calls since the last test: it failed."""
        self._pending.clear()

    def keep(self, test: str) -> None:
        """Write the calls of a test that passed."""
        for key, before, after in self._pending:
            nbytes = sum(map(_bytes, (*before, *after)))
            if nbytes <= MOST_BYTES and sum(c["key"] == key for c in self._calls) < EACH:
                self._calls.append(self._write(key, before, after) | {"test": test})
        self.forget()

    def _write(self, key: str, before: list[Any], after: list[Any]) -> dict[str, Any]:
        pairs = enumerate(zip(before, after, strict=True))
        changed = [i for i, (x, y) in pairs if x.tobytes() != y.tobytes()]
        arrays = {f"b{i}": a for i, a in enumerate(before)} | {f"a{i}": after[i] for i in changed}
        name = f"c{len(self._calls):03d}"
        np.savez_compressed(self._folder / "calls" / f"{name}.npz", allow_pickle=False, **arrays)
        factory, _ = self._factories[key]
        sizes = [i for i, a in enumerate(before) if a.shape == () and a.dtype == np.int64]
        return {
            "name": name,
            "key": key,
            "kernel": f"{factory.__module__}.{factory.__qualname__}",
            "arguments": len(before),
            "sizes": sizes,
            "changed": changed,
        }

    def write_library(self, arch: str) -> None:
        """Compile the recorded kernels for a GPU of `arch` into one library. Raises TargetError."""
        from mlcc_compiler.cuda.build import cuda_code_in
        from mlcc_compiler.ir._tvm import tvm
        from mlcc_compiler.kernels.gpu.device import Gpu
        from mlcc_compiler.kernels.tir_pipeline import GPU_PIPELINE
        from mlcc_compiler.pipeline import tvm_target_of
        from mlcc_targets import Choices, get_target

        row, functions = get_target("cuda", Choices(archs=(arch,))), {}
        for key in sorted({call["key"] for call in self._calls}):
            factory, arguments = self._factories[key]
            functions[key] = factory(Gpu.of(row), *arguments).with_attr("global_symbol", key)
        target = tvm_target_of(row)
        with cuda_code_in(row), target:
            executable = tvm.compile(tvm.IRModule(functions), target, tir_pipeline=GPU_PIPELINE)
            executable.export_library(str(self._folder / "kernels.so"))
        (self._folder / "calls.json").write_text(json.dumps(self._calls))


def _key(factory: Callable[..., Any], arguments: tuple[Any, ...]) -> str:
    """A symbol for a kernel."""
    text = repr((factory.__module__, factory.__qualname__, arguments))
    return "k" + hashlib.sha256(text.encode()).hexdigest()[:12]


def _bytes(array: Any) -> int:
    """Bytes of the items that are unlike the first one, or unlike the last one."""
    if not array.size:
        return 0
    items = np.atleast_1d(array).reshape(-1).view(f"u{array.itemsize}")
    return min(np.count_nonzero(items != items[i]) for i in (0, -1)) * int(array.itemsize)


def _plain(argument: Any) -> Any:
    """An argument as numpy has it, copied."""
    return np.int64(argument) if isinstance(argument, int) else np.array(argument.numpy())


# -- pytest's hooks -------------------------------------------------------------------------------

_recorders: list[KernelRecorder] = []


def pytest_sessionstart() -> None:
    _recorders.append(KernelRecorder(Path(os.environ["MLCC_GPU_CALLS"])))


def pytest_runtest_setup(item: Any) -> None:
    if not getattr(item.module, "_recorded", False):
        item.module._recorded = True
        item.module.compiled = _recorders[0].watch(item.module.compiled)


def pytest_runtest_makereport(item: Any, call: Any) -> None:
    if call.when == "call" and call.excinfo is None:
        _recorders[0].keep(item.nodeid.partition("::")[2])
    elif call.when != "setup":
        _recorders[0].forget()


def pytest_sessionfinish() -> None:
    _recorders[0].write_library(os.environ.get("MLCC_GPU_ARCH", "sm_90"))
