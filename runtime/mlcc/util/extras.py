"""What `pip install mlcc` leaves out: which extra brings a package, and what to type without it.

Packages are looked for, never imported.
"""

from __future__ import annotations

from importlib.util import find_spec

from mlcc.errors import UnsupportedError

_EXTRAS = {
    "compile": (
        *("tvm", "tvm_ffi", "numpy", "filelock", "huggingface_hub", "safetensors"),
        *("threadpoolctl", "ziglang"),
    ),
    "serve": ("fastapi", "prometheus_client", "starlette", "uvicorn"),
}
"""What the extra of a command's name brings."""
OF_DEVICE = {"cuda": "cuda-runtime", "metal": "metal"}
"""The extra that brings TVM's package for a device; others need none of it."""


def is_here(package: str) -> bool:
    """Whether a package is installed."""
    try:
        return find_spec(package) is not None
    except (ValueError, ModuleNotFoundError):  # sys.modules holds None for it, or for its parent
        return False


def lacking(command: str) -> str:
    """The extra that a command needs and this machine lacks; "" if there is none."""
    return "" if all(map(is_here, _EXTRAS.get(command, ()))) else command


def advice(package: str, extra: str = "") -> str:
    """What is missing and what to type; "" for a package that no extra brings."""
    extra = extra or next((name for name, brought in _EXTRAS.items() if package in brought), "")
    return f'{package}, which is not installed; type `pip install "mlcc[{extra}]"`' if extra else ""


def require(package: str, extra: str, purpose: str) -> None:
    """Raises UnsupportedError if a package is not here, without which `purpose` cannot be."""
    if not is_here(package):
        raise UnsupportedError(f"{purpose} needs {advice(package, extra)}")
