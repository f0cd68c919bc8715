"""Checked access to one architecture's metadata, and to the file's tensor names.

Keys are llama.cpp's `ARCHITECTURE.*`. Keys that were read are recorded; the others are reported.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from mlcc.errors import CheckpointError
from mlcc_compiler.checkpoint.gguf.header import Value

Shapes = Mapping[str, tuple[int, ...]]

_MOST_LAYERS = 1 << 12
_MEANT_FOR_OTHERS = (
    *("tensor_data_layout", "rope.dimension_sections", "attention.value_length"),
    *("attention.layer_norm_epsilon", "rope.scaling.finetuned"),
)
"""Keys that are redundant, or irrelevant to text models."""


@dataclass(frozen=True)
class Keys:
    """The metadata keys of a file."""

    metadata: Mapping[str, Value]
    architecture: str
    shapes: Shapes = field(repr=False)
    """Shapes of the file's tensors, by its names."""
    _read_keys: set[str] = field(default_factory=set, repr=False)

    @property
    def prefix(self) -> str:
        return f"{self.architecture}."

    def has(self, key: str) -> bool:
        return self.prefix + key in self.metadata

    def get(self, key: str, default: Any = None) -> Any:
        self._read_keys.add(key)
        return self.metadata.get(self.prefix + key, default)

    def number(self, key: str, default: Any = None) -> Any:
        """A number; if given per layer, the value that all layers share."""
        value = self.get(key, default)
        if isinstance(value, np.ndarray) and value.size and (value == value[0]).all():
            value = value[0].item()
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise self.refuse(key, "a number, the same in all layers")
        return value

    def whole(self, key: str, default: Any = None) -> int:
        """A positive integer, the same in all layers."""
        value = self.number(key, default)
        if not isinstance(value, int) or value <= 0:
            raise self.refuse(key, "a whole number above 0")
        return value

    def largest(self, key: str) -> int:
        """An integer, the largest if given per layer; 0 if absent."""
        value = self.get(key, 0)
        if isinstance(value, np.ndarray) and value.dtype.kind in "iu" and value.size:
            value = int(value.max())
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise self.refuse(key, "a whole number, or one for each layer")
        return value

    def each(self, key: str, layers: int) -> list[int]:
        """An integer per layer; the file may give one for all."""
        value = self.get(key, 0)
        if isinstance(value, np.ndarray):
            if len(value) < layers or value.dtype.kind not in "iub":
                raise self.refuse(key, f"a whole number for each of {layers} layers")
            return [int(each) for each in value[:layers]]
        if layers > _MOST_LAYERS:
            raise self.refuse(key, f"of at most {_MOST_LAYERS} layers")
        return [self.largest(key)] * layers

    def flag(self, key: str, default: bool) -> bool:
        """A boolean."""
        value = self.get(key, default)
        if not isinstance(value, bool):
            raise self.refuse(key, "true or false")
        return value

    def original_context(self) -> int | None:
        """The context length before rope scaling; None if not given."""
        key = "rope.scaling.original_context_length"
        return self.whole(key) if self.number(key, 0) else None

    @cached_property
    def parts(self) -> frozenset[str]:
        """Names of tensors below `blk.N.`, of all layers."""
        return frozenset(re.sub(r"^blk\.\d+\.", "", name) for name in self.shapes)

    def refuse(self, key: str, wanted: str) -> CheckpointError:
        found = repr(self.get(key))
        return CheckpointError(
            f"metadata key '{self.prefix}{key}' must be {wanted}, got {found[:60]}; this GGUF file "
            "is damaged, or of a kind that mlcc does not know"
        )

    def unknown(self) -> list[str]:
        """Keys that were never read."""
        known = {self.prefix + key for key in (*self._read_keys, *_MEANT_FOR_OTHERS)}
        return sorted(k for k in self.metadata if k.startswith(self.prefix) and k not in known)
