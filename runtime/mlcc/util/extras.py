"""Optional dependencies: which extra installs a package, and the advice if it is missing.

Packages are looked up, never imported.
"""

from __future__ import annotations

from importlib.util import find_spec

from mlcc.errors import UnsupportedError

_EXTRAS = {
    "compile": (
        *("tvm", "tvm_ffi", "numpy", "filelock", "huggingface_hub", "safetensors"),
        *("threadpoolctl", "ziglang"),
    ),
    "serve": ("prometheus_client", "python_multipart", "starlette", "uvicorn"),
}
"""The packages of each extra."""
OF_DEVICE = {"cuda": "cuda-runtime", "metal": "metal"}
"""The extra that installs TVM's package for a device; other devices do not need it."""


def is_here(package: str) -> bool:
    """Whether a package is installed."""
    try:
        return find_spec(package) is not None
    except (ValueError, ModuleNotFoundError):  # sys.modules holds None for it, or for its parent
        return False


def lacking(command: str) -> str:
    """The extra that a command needs and that is not installed; "" if there is none."""
    return "" if all(map(is_here, _EXTRAS.get(command, ()))) else command


def advice(package: str, extra: str = "") -> str:
    """The missing package and what to type; "" for a package of no extra."""
    extra = extra or next((name for name, brought in _EXTRAS.items() if package in brought), "")
    return f'{package}, which is not installed; type `pip install "mlcc[{extra}]"`' if extra else ""


def require(package: str, extra: str, purpose: str) -> None:
    """Raises UnsupportedError if the package that `purpose` needs is not installed."""
    if not is_here(package):
        raise UnsupportedError(f"{purpose} needs {advice(package, extra)}")
