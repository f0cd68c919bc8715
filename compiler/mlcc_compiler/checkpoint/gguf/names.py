"""The name map of GGUF: locates the model's tensors in a file by its family's entry."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

from mlcc.errors import CheckpointError
from mlcc_compiler.checkpoint.gguf.families.table import FAMILIES
from mlcc_compiler.checkpoint.gguf.family import Family, JoinedTensor
from mlcc_compiler.checkpoint.gguf.orders import Order

Shape = tuple[int, ...]

_OF_EXPERTS = {
    "ffn_gate_exps": "gate_proj",
    "ffn_up_exps": "up_proj",
    "ffn_down_exps": "down_proj",
}
_GATE_UP = "ffn_gate_up_exps"
"""Both matrices of each expert in one, as Gemma 4 has them."""
_MOST_EXPERTS = 4096
"""Per layer."""

DRAFTS = "mtp.layers.0"
"""The first layer of multi-token prediction, which alone is read, under Qwen3-Next's names."""
_OF_DRAFTS = {
    "nextn.eh_proj": "mtp.fc",
    "nextn.enorm": "mtp.pre_fc_norm_embedding",
    "nextn.hnorm": "mtp.pre_fc_norm_hidden",
    "nextn.shared_head_norm": "mtp.norm",
}
_COPIES = ("nextn.embed_tokens", "nextn.shared_head_head")
"""The model's embedding and head once more."""

FREQUENCIES = ("rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight")
"""Tensors with numbers of the config: `config.py` reads them."""
_MADE_BY_CONVERTERS = re.compile(r"blk\.\d+\.(attn_rot_embd|rope_freqs|rope_factors_\w+)\.weight")
"""In old files: copies of config values."""
_OF_LAYER = re.compile(r"blk\.(\d+)\.(\w+(?:\.[a-z]\w*)??)(\.weight|\.bias)?")
_ONE_EXPERT = re.compile(r"blk\.(\d+)\.ffn_(gate|up|down)\.(\d+)\.weight")
"""Files of 2023 and early 2024, where each expert is a tensor."""

_FLAT = ("ssm_a", "ssm_d", "ssm_norm.weight")
"""Vectors that llama.cpp writes as matrices, for broadcasting."""
_TAPS = ("ssm_conv1d.weight", "shortconv.conv.weight")
"""Filters [channels, taps] that Hugging Face has as [channels, 1, taps]."""
_GATES = ("ffn_gate_inp_shexp.weight",)
"""A row that some files have as a vector."""
_LOGARITHMS = ("ssm_a",)
"""Tensors that hold -exp(x) of the model's x."""


@dataclass(frozen=True)
class Source:
    """A tensor of the file, or one of the matrices in it."""

    name: str
    expert: int | None = None
    transposed: bool = False
    """Whether its matrices are transposed."""
    half: int | None = None
    """0: the first half of its rows; 1: the second."""


@dataclass(frozen=True)
class TensorLocation:
    """Location of one of the model's tensors in the file, and the changes to undo."""

    sources: tuple[Source, ...]
    """Concatenated by rows."""
    shape: Shape
    rows: Order | None = None
    columns: tuple[int, Order] | None = None
    """Order of runs of columns."""
    offset: float = 0.0
    """Amount that was added to the values."""
    logarithm: bool = False
    """Whether the values are -exp of the model's."""

    @property
    def name(self) -> str:
        """The tensor of the file, or the first of them."""
        return self.sources[0].name


def locations(
    architecture: str, shapes: Mapping[str, Shape], config: Mapping[str, Any]
) -> dict[str, TensorLocation]:
    """Model's name -> location. Unknown tensors keep their name and are refused later.

    shapes: of the file's tensors. Raises CheckpointError.
    """
    return _Map(FAMILIES[architecture], shapes, dict(config)).read()


class _Map:
    """Collects the locations of one file."""

    def __init__(self, family: Family, shapes: Mapping[str, Shape], config: dict[str, Any]) -> None:
        self.family, self.shapes, self.config = family, shapes, config
        self.found: dict[str, TensorLocation] = {}
        self.layers: int = config.get("num_hidden_layers", 0)
        self.rows = family.orders(config) if self.layers else {}
        self.columns = family.columns(config) if self.layers else {}
        self.joined = {part: join for join in family.joins for part in join.parts}

    def read(self) -> dict[str, TensorLocation]:
        for name in self.shapes:
            if name in FREQUENCIES or _MADE_BY_CONVERTERS.fullmatch(name):
                continue
            for target, location in self._of(name):
                self._put(target, location)
        return self.found

    def _put(self, target: str, location: TensorLocation) -> None:
        if target in self.found:
            raise CheckpointError(
                f"the GGUF file's tensors {self.found[target].name!r} and {location.name!r} are "
                f"both the model's {target!r}; fetch it again"
            )
        self.found[target] = location

    def _of(self, name: str) -> Iterable[tuple[str, TensorLocation]]:
        """Map a tensor of the file: to nothing, to one of the model's, or to one per expert."""
        if (one := _ONE_EXPERT.fullmatch(name)) is not None and self._routes:
            mlp = f"model.layers.{one[1]}.{self.family.experts}.{one[3]}"
            return [(f"{mlp}.{one[2]}_proj.weight", self._place(name))]
        if (stacked := self.family.stacked.get(name)) is not None:
            return self._matrices(name, stacked)
        if (match := _OF_LAYER.fullmatch(name)) is None:
            return [self._outer(name)]
        number, part, kind = match[1], match[2], match[3] or ""
        layer = f"model.layers.{number}"
        if self._drafts(int(number)):
            if int(number) > self.layers or part in _COPIES:
                return []
            if part in _OF_DRAFTS:
                return [(_OF_DRAFTS[part] + kind, self._place(name))]
            layer = DRAFTS
        if part in (*_OF_EXPERTS, _GATE_UP) and kind == ".weight" and self._routes:
            return self._experts(name, layer, _OF_EXPERTS.get(part))
        if (join := self.joined.get(part + kind)) is not None:
            return self._join(join, number, layer, part + kind)
        target = self.family.layer.get(part + kind)
        if target is None and part in self.family.layer:
            target = self.family.layer[part] + kind
        if target is None:
            return [(name, self._place(name))]
        return [(f"{layer}.{target}", self._place(name, part, kind))]

    def _drafts(self, layer: int) -> bool:
        """Whether it is one of multi-token prediction, which follow the model's own."""
        more: int = self.config.get("num_nextn_predict_layers", 0)
        return self.layers <= layer < self.layers + more

    @property
    def _routes(self) -> bool:
        return "ffn_gate_inp" in self.family.layer

    def _matrices(self, name: str, target: str) -> Iterable[tuple[str, TensorLocation]]:
        """The matrices of a tensor of three dimensions. Raises CheckpointError."""
        shape = self.shapes[name]
        if len(shape) != 3 or shape[0] > _MOST_EXPERTS:
            raise CheckpointError(
                f"the GGUF file's tensor {name!r} is {shape}, and no few matrices; fetch it again"
            )
        for i in range(shape[0]):
            yield target.format(i), TensorLocation((Source(name, i),), shape[1:])

    def _outer(self, name: str) -> tuple[str, TensorLocation]:
        stem, _, kind = name.rpartition(".")
        if stem not in self.family.outer:
            return name, self._place(name)
        is_norm = stem.endswith("_norm") and kind == "weight"
        location = self._place(name, offset=self.family.norm_offset if is_norm else 0.0)
        return f"{self.family.outer[stem]}.{kind}", location

    def _place(
        self, name: str, part: str = "", kind: str = "", offset: float = 0.0
    ) -> TensorLocation:
        whole, shape = part + kind, self.shapes[name]
        if part.endswith("_norm") and kind == ".weight" and part not in self.family.plain_norms:
            offset = self.family.norm_offset
        if whole in _FLAT:
            shape = (prod(shape),)
        elif whole in _TAPS and len(shape) == 2:
            shape = (shape[0], 1, shape[1])
        elif whole in _GATES and len(shape) == 1:
            shape = (1, *shape)
        return TensorLocation(
            (Source(name),),
            shape,
            rows=self.rows.get(part, self.rows.get(whole)),
            columns=self.columns.get(part),
            offset=offset,
            logarithm=whole in _LOGARITHMS,
        )

    def _experts(
        self, name: str, layer: str, proj: str | None
    ) -> Iterable[tuple[str, TensorLocation]]:
        """proj: None = gate and up are halves of a matrix."""
        count, *shape = self.shapes[name]
        if count > _MOST_EXPERTS:
            raise CheckpointError(
                f"the GGUF file's tensor {name!r} is of {count} experts, and at most "
                f"{_MOST_EXPERTS} are read; fetch it again"
            )
        halves = {proj: None} if proj else {"gate_proj": 0, "up_proj": 1}
        rows, *width = shape
        if not proj and rows % 2:
            raise CheckpointError(
                f"the GGUF file's tensor {name!r} has {rows} rows an expert, which are no two "
                "halves; fetch it again"
            )
        for i in range(count):
            for own, half in halves.items():
                target = f"{layer}.{self.family.experts}.{i}.{own}.weight"
                source = Source(name, i, half=half)
                yield target, TensorLocation((source,), (rows // len(halves), *width))

    def _join(
        self, join: JoinedTensor, number: str, layer: str, part: str
    ) -> Iterable[tuple[str, TensorLocation]]:
        """Registered with the first part; parts of an incomplete join keep their names."""
        names = [f"blk.{number}.{each}" for each in join.parts]
        shapes = [self.shapes.get(name) for name in names]
        if None in shapes:
            name = f"blk.{number}.{part}"
            return [(name, self._place(name))]
        if part != join.parts[0]:
            return []
        sources = tuple(
            Source(name, transposed=each in join.transposed)
            for name, each in zip(names, join.parts, strict=True)
        )
        matrices = [
            _stacked(s, source.transposed) for s, source in zip(shapes, sources, strict=True) if s
        ]
        shape: Shape = (sum(rows for rows, _ in matrices), matrices[0][1])
        if len({width for _, width in matrices}) > 1:
            raise CheckpointError(
                f"the GGUF file's tensors {names[0]!r} and {names[1]!r} are of different widths; "
                "fetch it again"
            )
        rows = None if join.order is None else join.order(self.config)
        shape = (prod(shape),) if join.flat else shape
        return [(f"{layer}.{join.target}", TensorLocation(sources, shape, rows))]


def _stacked(shape: Shape, transposed: bool) -> tuple[int, int]:
    """Rows and columns of all its matrices, concatenated by rows."""
    if transposed and len(shape) > 1:
        shape = (*shape[:-2], shape[-1], shape[-2])
    return prod(shape[:-1]), shape[-1]
