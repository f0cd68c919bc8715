"""A GGUF model as a checkpoint, with the interface of `checkpoint.folder.Checkpoint`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from mlcc.errors import CheckpointError
from mlcc_compiler.checkpoint.folder import Checkpoint
from mlcc_compiler.checkpoint.gguf.config import architecture_of, config_of, generation_config_of
from mlcc_compiler.checkpoint.gguf.dequantize import to_float
from mlcc_compiler.checkpoint.gguf.files import all_parts
from mlcc_compiler.checkpoint.gguf.header import GgufTensor, Value
from mlcc_compiler.checkpoint.gguf.mmproj import Mmproj, find_mmproj, try_mmproj
from mlcc_compiler.checkpoint.gguf.names import locations
from mlcc_compiler.checkpoint.gguf.tensors import GgufTensors, blocks_of
from mlcc_compiler.checkpoint.gguf.tokenizer.build import tokenizer_of
from mlcc_compiler.checkpoint.gguf.tokenizer.vocabulary import Vocabulary

_TEMPLATE = "tokenizer.chat_template"
_MOST_FREQUENCIES = 4096


@dataclass(frozen=True)
class GgufCheckpoint(Checkpoint):
    """`folder` is the file, the first of its parts."""

    metadata: Mapping[str, Value] = field(repr=False, default_factory=dict)
    source: GgufTensors = field(repr=False, default_factory=lambda: GgufTensors({}, {}))
    mmproj: Mmproj | None = None
    """Its vision tower."""

    @classmethod
    def open(cls, path: str | Path, mmproj: str | Path | None = None) -> GgufCheckpoint:
        """Read the headers of a file and of its other parts. mmproj: the file of its vision tower;
        None = the one beside it, if it has one that is built."""
        metadata, found = all_parts(Path(path))
        found, factors = _without_factors(found)
        architecture = architecture_of(metadata, path)
        table = found.get("token_embd.weight")
        if table is None or len(table.shape) != 2:
            raise CheckpointError(f"{path}: has no matrix 'token_embd.weight'; fetch it again")
        shapes = {name: tensor.shape for name, tensor in found.items()}
        config, notes = config_of(
            metadata, architecture, shapes, lambda name: _frequencies(found, name)
        )
        where = locations(architecture, shapes, config)
        tower, seen = _tower(Path(path), mmproj, architecture, config, metadata)
        return cls(
            folder=Path(path),
            config=config,
            outer_config=config | (tower.outer_config if tower else {}),
            generation_config=generation_config_of(metadata),
            tokenizer_config={},
            chat_templates=_templates(metadata),
            notes=(*(f"the file's key '{key}' is not used" for key in notes), *seen),
            metadata=metadata,
            source=GgufTensors(found, where, factors),
            mmproj=tower,
        )

    @property
    def name(self) -> str:
        """`general.name`, or the file name."""
        given_name = self.metadata.get("general.name")
        text = given_name if isinstance(given_name, str) and given_name.isprintable() else ""
        text = "-".join(text.replace("/", " ").split())[:100]
        return text or self.folder.stem

    @cached_property
    def tensors(self) -> GgufTensors:
        return self.source

    @property
    def vision_tensors(self) -> Any:
        """The tensors of its vision tower's file."""
        return self.mmproj.tensors if self.mmproj else self.tensors

    @property
    def preprocessor(self) -> dict[str, Any] | None:
        """The image processor's settings, as far as the tower's file has them."""
        return self.mmproj.preprocessor if self.mmproj else None

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """Raises CheckpointError."""
        found, rows = Vocabulary.of(self.metadata), self.config["vocab_size"]
        if len(found.tokens) > rows:
            raise CheckpointError(
                f"{self.folder}: has {len(found.tokens)} tokens and embeddings of {rows}; fetch "
                "the file again"
            )
        return found

    @cached_property
    def tokenizer(self) -> bytes:
        """tokenizer.json, converted from the file's vocabulary."""
        return tokenizer_of(self.vocabulary)

    @property
    def tokenizer_notes(self) -> list[str]:
        return self.vocabulary.notes

    @cached_property
    def special_tokens(self) -> dict[str, str]:
        return self.vocabulary.special_tokens

    @cached_property
    def eos_token_ids(self) -> tuple[int, ...]:
        return self.vocabulary.end_ids

    @cached_property
    def licence(self) -> tuple[str, bytes] | None:
        """A GGUF file has the name of its licence, not the text."""
        return None


def _tower(
    path: Path,
    given: str | Path | None,
    architecture: str,
    config: Mapping[str, Any],
    metadata: Mapping[str, Value],
) -> tuple[Mmproj | None, tuple[str, ...]]:
    """The vision tower in the file that is given, or beside the model; and notes."""
    beside = find_mmproj(path) if given is None else None
    if given is None and beside is None:
        return None, ()
    tokens = Vocabulary.of(metadata).tokens
    if given is not None:
        tower = Mmproj.open(Path(given), architecture, config, tokens)
        return tower, tower.notes
    assert beside is not None
    return try_mmproj(beside, architecture, config, tokens)


def _without_factors(
    found: Mapping[str, GgufTensor],
) -> tuple[dict[str, GgufTensor], dict[str, GgufTensor]]:
    """The tensors without those that belong to tensors in NVFP4; and their factors. Factors of
    inputs, which are for products of four bits, are not used."""
    stems = {n.removesuffix(".weight"): n for n, t in found.items() if t.format.name == "NVFP4"}
    factors = {n: found[f"{stem}.scale"] for stem, n in stems.items() if f"{stem}.scale" in found}
    beside = {f"{stem}.{part}" for stem in stems for part in ("scale", "input_scale")}
    return {name: tensor for name, tensor in found.items() if name not in beside}, factors


def _frequencies(found: Mapping[str, GgufTensor], name: str) -> list[float] | None:
    """The numbers of a small tensor. Raises CheckpointError."""
    tensor = found.get(name)
    if tensor is None:
        return None
    if len(tensor.shape) != 1 or tensor.shape[0] > _MOST_FREQUENCIES:
        raise CheckpointError(f"{tensor.path}: tensor {name!r} is no list of frequencies")
    values: list[float] = to_float(blocks_of(tensor), tensor)[0].astype(float).tolist()
    if not np.isfinite(values).all():
        raise CheckpointError(f"{tensor.path}: tensor {name!r} holds NaN or infinity")
    return values


def _templates(metadata: Mapping[str, Value]) -> dict[str, str]:
    """Chat templates by name."""
    found = {}
    for key, value in metadata.items():
        if isinstance(value, str) and key == _TEMPLATE:
            found["default"] = value
        elif isinstance(value, str) and key.startswith(_TEMPLATE + "."):
            found[key.removeprefix(_TEMPLATE + ".")] = value
    return found
