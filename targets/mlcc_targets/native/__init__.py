"""TVM's WebGPU device plugin: GPUs through Vulkan (Linux; Metal on macOS is untried).

`autoload` is TVM's out-of-tree entry point (group `tvm.backends`), which `import tvm` calls. It
loads the plugin, which searches for GPUs at first use. Imports neither TVM nor mlcc.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import sys
from pathlib import Path

_FOLDER = Path(__file__).resolve().parent / "lib"
_LIBRARY = _FOLDER / ("libmlcc_webgpu.dylib" if sys.platform == "darwin" else "libmlcc_webgpu.so")
_loaded: list[ctypes.CDLL] = []


def library() -> Path | None:
    """The path of the plugin, if it was built when mlcc was installed."""
    return _LIBRARY if _LIBRARY.exists() else None


def why_absent() -> str:
    """Why there is no plugin and what to do, in one line; "" if there is one."""
    if library():
        return why_no_wgpu()
    try:
        return (_FOLDER / "absent.txt").read_text(encoding="utf-8").strip()
    except OSError:
        return "the WebGPU plugin was not built; run: python -m mlcc_targets.native.build"


def wgpu_library() -> Path | None:
    """The path of wgpu-native in the Python package `wgpu`."""
    spec = importlib.util.find_spec("wgpu")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        for path in sorted((Path(folder) / "resources").glob("*wgpu_native-release*")):
            return path
    return None


def why_no_wgpu() -> str:
    """Why there is no wgpu-native and what to do, in one line; "" if there is one."""
    if wgpu_library():
        return ""
    if sys.version_info < (3, 11):
        return "the package `wgpu` needs Python 3.11 or later; use a newer Python, or --target cpu"
    return 'the Python package `wgpu` is missing; type `pip install "mlcc[vulkan]"`'


def prepare_drivers() -> None:
    """To be called before a driver is loaded."""
    if "XDG_RUNTIME_DIR" not in os.environ:
        # Without a desktop, Mesa's device-select layer prints errors at each enumeration.
        os.environ.setdefault("NODEVICE_SELECT", "1")


def autoload() -> None:
    """Register the device with TVM, during its import. A missing plugin is no error."""
    path = library()
    if path is None or _loaded:
        return
    prepare_drivers()
    plugin = ctypes.CDLL(str(path))
    wgpu = wgpu_library()
    plugin.mlcc_webgpu_set_library(bytes(wgpu) if wgpu else b"", why_no_wgpu().encode())
    _loaded.append(plugin)
