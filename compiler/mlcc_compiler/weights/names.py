"""Name map: a checkpoint's tensor for each tensor of the model.

Modules have HF's names, so the map is the identity, except for prefixes that wrap a language model
inside a multimodal one; its other towers are left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

# (prefix in the checkpoint, what it stands for); the first that occurs is used.
PREFIXES = (
    ("model.language_model.", "model."),
    ("model.text_model.", "model."),
    ("language_model.", ""),
)


@dataclass(frozen=True)
class NameMap:
    """`source[model name]` is the checkpoint's name; `present` the checkpoint's text tensors."""

    source: dict[str, str]
    present: list[str]


def checkpoint_names(names: Sequence[str], found: Iterable[str]) -> NameMap:
    """Map the model's tensor names onto those of a checkpoint."""
    there = list(found)
    for prefix, stands_for in PREFIXES:
        wrapped = [name for name in there if name.startswith(prefix)]
        if wrapped:
            outer = [n for n in there if n.startswith(("lm_head.", "mtp."))]
            return NameMap({n: _wrap(n, prefix, stands_for, there) for n in names}, wrapped + outer)
    return NameMap({name: name for name in names}, there)


def _wrap(name: str, prefix: str, stands_for: str, there: list[str]) -> str:
    if name in there or not name.startswith(stands_for):
        return name
    return prefix + name.removeprefix(stands_for)
