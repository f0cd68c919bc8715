"""Checked access to config.json, with errors that name the field."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from mlcc.errors import CheckpointError

HfConfig = Mapping[str, Any]
_LARGEST = 2**31 - 1
"""Largest integer that kernels count with."""

LAYER_TYPES = ("full_attention", "sliding_attention")


def require(hf: HfConfig, key: str) -> int:
    """A required positive integer. Raises CheckpointError."""
    value = hf.get(key)
    if isinstance(value, bool) or not isinstance(value, int) or value <= 0:
        raise refuse(key, "a positive integer", value)
    if value > _LARGEST:
        raise refuse(key, f"at most {_LARGEST}", value)
    return value


def positive(hf: HfConfig, key: str) -> float:
    """A required finite number above 0. Raises CheckpointError."""
    value = hf.get(key)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise refuse(key, "a number", value)
    if not 0 < value <= sys.float_info.max:  # an integer of 400 digits is no float
        raise refuse(key, "a finite number above 0", value)
    return float(value)


def optional(hf: HfConfig, key: str) -> float | None:
    """A positive integer, or None where the field is null."""
    return None if hf.get(key) is None else positive(hf, key)


def window_of(hf: HfConfig) -> int | None:
    """The width of sliding attention; null means no window."""
    return None if hf.get("sliding_window") is None else require(hf, "sliding_window")


def layer_types(hf: HfConfig, default: Sequence[str]) -> Sequence[str]:
    """One of LAYER_TYPES per layer: `layer_types` if given, else the architecture's `default`."""
    types = hf.get("layer_types")
    if types is None:
        return default
    if not isinstance(types, list) or len(types) != len(default):
        raise refuse("layer_types", f"a list of {len(default)}, one for each layer", types)
    for kind in types:
        if kind not in LAYER_TYPES:
            raise refuse("layer_types", f"made of {' and '.join(LAYER_TYPES)}", kind)
    return types


def refuse(key: str, wanted: str, value: Any) -> CheckpointError:
    """The error for an invalid value."""
    found = repr(value)
    found = found if len(found) <= 60 else found[:60] + "..."
    return CheckpointError(
        f"config.json: '{key}' must be {wanted}, got {found}; "
        "fetch the checkpoint's config.json again"
    )
