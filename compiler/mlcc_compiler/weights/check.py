"""Checks that a checkpoint holds the tensors its model expects, and lists all faults at once.

Compares names and shapes only; reads no tensor.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from mlcc.errors import CheckpointError

Shapes = Mapping[str, tuple[int, ...]]

LISTED = 20
"""Names listed per kind of fault; further ones are counted."""
HARMLESS = (r"rotary_emb\.inv_freq$", r"\.masked_bias$", r"attn\.bias$")
"""Buffers that old versions of transformers saved with the weights; never parameters."""


def check_layers(layers: int, tensors: int) -> None:
    """Check that every layer has tensors, before anything is built per layer. Raises
    CheckpointError."""
    if layers > tensors:
        raise CheckpointError(
            f"config.json: 'num_hidden_layers' is {layers} and the checkpoint has {tensors} "
            "tensors; check that both come from the same model and fetch it again"
        )


def check_tensors(expected: Shapes, found: Shapes, harmless: Sequence[str] = ()) -> None:
    """Raises one CheckpointError that lists the missing, extra and misshapen tensors.

    `harmless`: regular expressions (`re.search`) of an architecture's extras that may be ignored,
    besides HARMLESS.
    """
    ignored = re.compile("|".join((*HARMLESS, *harmless)))
    missing = [name for name in expected if name not in found]
    extra = [name for name in found if name not in expected and not ignored.search(name)]
    misshapen = [
        f"{name} is {_dims(found[name])}, not {_dims(shape)}"
        for name, shape in expected.items()
        if name in found and tuple(found[name]) != tuple(shape)
    ]
    faults = {"missing": missing, "extra": extra, "misshapen": misshapen}
    listed = [f"{len(names)} {kind}: {_some(names)}" for kind, names in faults.items() if names]
    if listed:
        raise CheckpointError(
            "the checkpoint's tensors are not those of its config.json; "
            + "; ".join(listed)
            + "; check that both come from the same model and fetch it again"
        )


def _dims(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape)) or "scalar"


def _some(names: list[str]) -> str:
    more = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
    return ", ".join(sorted(names)[:LISTED]) + more
