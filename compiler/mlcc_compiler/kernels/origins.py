"""Where a kernel comes from: the factory that made it, and what the factory was called with.

Factories are pure, so an origin and the sources say which kernel it is, in a hundredth of the time
that its text takes (`object_files.py`). Kernels are known by their bodies, which attributes that
passes add leave as they are.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Mapping, Set
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path
from types import FunctionType
from typing import Any

import mlcc
import mlcc_compiler
import mlcc_targets
from mlcc_compiler.ir.graph import structural_hash

SOURCES = (
    (mlcc_compiler, ("kernels", "ir", "quantization")),
    (mlcc_targets, (".",)),
    (mlcc, ("artifact", "engine/batch", "errors.py", "util", "limits.py")),
)
"""Packages, and what factories import of them."""

_MOST = 4096
_origins: dict[Any, tuple[Any, str]] = {}
"""The body of a kernel -> the kernel and its origin, of the last `_MOST` kernels."""


def record_origin(kernel: Any, factory: Callable[..., Any], *arguments: Any) -> None:
    """Remember the origin of a kernel, if all arguments have a `canonical_text`."""
    try:
        origin = canonical_text((factory, *arguments))
    except TypeError:
        return
    _keep(kernel, origin)


def record_fused_origin(kernel: Any, fuse: Callable[..., Any], *parts: Any) -> None:
    """Remember that `fuse` made a kernel of others, if their origins are known."""
    origins = [origin_of(part) for part in parts]
    if None not in origins:
        _keep(kernel, f"{canonical_text(fuse)}{origins}")


def origin_of(kernel: Any) -> str | None:
    """The origin of a kernel, of which passes may have changed the attributes; None if unknown.

    TVM's hash of the kernel is part of it, for a factory that was not as its source has it: a test
    may have changed a constant.
    """
    made, origin = _origins.get(kernel.body, (None, ""))
    if made is None or len(made.params) != len(kernel.params):
        return None
    if not all(a.same_as(b) for a, b in zip(made.params, kernel.params, strict=True)):
        return None
    return f"{origin} {structural_hash(made)} {kernel.attrs}"


def _keep(kernel: Any, origin: str) -> None:
    if len(_origins) >= _MOST:
        del _origins[next(iter(_origins))]
    _origins[kernel.body] = kernel, hashlib.sha256(origin.encode()).hexdigest()


def canonical_text(value: Any) -> str:
    """A text that is the same in every process and differs where a value does, of numbers, texts,
    mlcc's functions, and collections and mlcc's dataclasses of these. Raises TypeError for others.
    """
    if value is None or type(value) in (bool, int, float, str, bytes):
        return f"{type(value).__name__} {value!r}"
    if type(value) in (tuple, list):
        return f"({', '.join(map(canonical_text, value))})"
    if isinstance(value, Set):
        return f"{{{', '.join(sorted(map(canonical_text, value)))}}}"
    if isinstance(value, Mapping):
        return canonical_text(
            {canonical_text(key) + ": " + canonical_text(item) for key, item in value.items()}
        )
    if isinstance(value, FunctionType) and _is_ours(value):
        return f"{value.__module__}.{value.__qualname__}"
    if is_dataclass(value) and _is_ours(type(value)):
        kind, items = type(value), [getattr(value, field.name) for field in fields(value)]
        return f"{kind.__module__}.{kind.__qualname__}{canonical_text(items)}"
    raise TypeError(f"{value!r} has no canonical text")


def _is_ours(value: Any) -> bool:
    """Whether it is what a module of mlcc defines under its name; a test may have replaced it."""
    module = sys.modules.get(value.__module__)
    ours = value.__module__.partition(".")[0] in ("mlcc", "mlcc_compiler", "mlcc_targets")
    return ours and getattr(module, value.__qualname__, None) is value


@cache
def sources() -> str:
    """A hash of the sources of which kernels are made."""
    digest = hashlib.sha256()
    for path in source_files():
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def source_files() -> list[Path]:
    """The files of `SOURCES`, in the same order everywhere."""
    found = list[Path]()
    for package, parts in SOURCES:
        root = Path(str(package.__file__)).parent
        for part in parts:
            inside = root.joinpath(part)
            found += [inside] if inside.is_file() else sorted(inside.rglob("*.py"))
    return found
