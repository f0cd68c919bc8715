"""The tensors of the audio towers of Gemma 4 and Gemma 3n, under the names and in the forms of
`models/audio/gemma4.py` and `models/audio/gemma3n.py`.

The convolutions become matrices, without the mean over channels, which LayerNorm would take away.
The scale of queries by dimension, softplus of the checkpoint's vector, also has that of keys. What
relative positions add to keys is computed: sinusoids of the distances times their matrix. Of Gemma
3n neither holds: its convolutions keep their mean, and its keys have no scale. Of the table of
Gemma 3n's own embeddings two rows are read, which become the matrix of the marks.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from mlcc_compiler.checkpoint.towers.tower_names import RenamedTensors, tower_names
from mlcc_compiler.models.audio.gemma3n import FILL, LAST, REAL
from mlcc_compiler.models.audio.gemma4 import PATCH, TAPS

Floats = npt.NDArray[np.float32]

PREFIXES: Mapping[str, str] = {
    "model.audio_tower.": "",
    "audio_tower.": "",
    "model.embed_audio.": "embed_audio.",
    "embed_audio.": "embed_audio.",
}
_FIRST, _SECOND = (f"subsample_conv_projection.layer{i}.conv.weight" for i in (0, 1))
_TAP = re.compile(r"subsample_conv_projection\.layer1\.taps\.(\d)\.weight")
_SCALE, _KEYS = ".query_scale", ".relative_keys"
_DEPTHWISE = ".depthwise_conv1d.weight"
_TABLE, _TABLE_NORM = "embed_audio.embedding.weight", "embed_audio.hard_embedding_norm.weight"
_MARKS = "embed_audio.marks.weight"
_LAYER_NORM = re.compile(r"^(layers\.\d+)\.norm\.")
_LONGEST_TURN = 10000.0
"""Of the sinusoids, as in all of transformers' towers of this kind."""


@dataclass(frozen=True)
class ConformerTensors(RenamedTensors):
    """The tensors of `base` that begin with one of PREFIXES; the others are absent."""

    heads: int
    window: int
    """Rows to which a row attends."""
    names_of_prefixes: Mapping[str, str] = field(default_factory=lambda: PREFIXES)

    key_scale: ClassVar[float] = float(np.log1p(np.e) / np.log(2))
    renamed: ClassVar[Mapping[str, str]] = {
        ".linear.": ".",
        ".per_dim_scale": _SCALE,
        ".relative_k_proj.weight": _KEYS,
    }

    def _renamed(self, name: str) -> str:
        for theirs, own in self.renamed.items():
            name = name.replace(theirs, own)
        return name

    def _convolution(self, weight: Floats) -> Floats:
        """A convolution's weight without the mean over its outputs."""
        wide = weight.astype(np.float64)
        return (wide - wide.mean(axis=0)).astype(np.float32)

    @cached_property
    def _names(self) -> dict[str, str]:
        """The checkpoint's name of each tensor."""
        return self._found()

    def _found(self) -> dict[str, str]:
        found = tower_names(self.base.shapes, self.names_of_prefixes, self._renamed)
        if (second := found.pop(_SECOND, None)) is not None:
            taps = _SECOND.replace("conv.weight", "taps.{}.weight")
            found |= {taps.format(tap): second for tap in range(TAPS)}
        return found

    @cached_property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of all tensors."""
        return {name: self._shape(name) for name in self._names}

    def _shape(self, name: str) -> tuple[int, ...]:
        shape: tuple[int, ...] = self.base.shapes[self._names[name]]
        if name == _FIRST and shape[1:] == (1, 3, 3):
            return shape[0], PATCH
        if _TAP.fullmatch(name) and shape[2:] == (3, 3):
            return shape[0], 3 * shape[1]
        if name.endswith(_SCALE):
            return (self.heads * shape[0],)
        if name.endswith(_KEYS):
            return self.window, shape[0]
        if name.endswith(_DEPTHWISE) and shape[1:2] == (1,):
            return shape[2], shape[0]
        return shape or (1,)

    def read(self, name: str) -> Floats:
        """A fresh float32 copy of one tensor."""
        tensor: Floats = self.base.read(self._names[name])
        if name == _FIRST:
            rows = self._convolution(tensor).reshape(len(tensor), -1)
            return np.pad(rows, ((0, 0), (0, PATCH - rows.shape[1])))
        if match := _TAP.fullmatch(name):
            rows = self._convolution(tensor)[:, :, int(match[1])]  # [out, in, over frequencies]
            return np.ascontiguousarray(rows.transpose(0, 2, 1)).reshape(len(tensor), -1)
        if name.endswith(_SCALE):
            per_head = np.logaddexp(0, tensor.astype(np.float64)) * _query_scale(len(tensor))
            return np.tile(per_head * self.key_scale, self.heads).astype(np.float32)
        if name.endswith(_KEYS):
            wide = tensor.astype(np.float64)
            return (self._turns(wide.shape[1]) @ wide.T / self.key_scale).astype(np.float32)
        if name.endswith(_DEPTHWISE):
            return np.ascontiguousarray(tensor[:, 0].T)
        if name.endswith(("_min", "_max")):  # a bound of `ops.clip`; infinite where there is none
            most = np.finfo(np.float32).max
            return np.clip(tensor, -most, most).reshape(1)
        return tensor

    def _turns(self, width: int) -> npt.NDArray[np.float64]:
        """Sines, then cosines of each distance: f64[window, width]."""
        step = np.log(_LONGEST_TURN) / max(width // 2 - 1, 1)
        turns = np.arange(self.window)[:, None] * np.exp(np.arange(width // 2) * -step)
        return np.concatenate([np.sin(turns), np.cos(turns)], axis=1)


@dataclass(frozen=True, kw_only=True)
class Gemma3nTensors(ConformerTensors):
    """As `ConformerTensors`, of Gemma 3n."""

    fill: int
    last: int
    """Rows of the table: of what fills a sound up, and of the token behind it."""
    eps: float
    """Of the norm of the table's rows."""

    key_scale: ClassVar[float] = 1.0
    renamed: ClassVar[Mapping[str, str]] = {
        "subsample_conv_projection.conv_": "subsample_conv_projection.layer",
        "conformer.": "layers.",
        ".ffw_layer_start.": ".feed_forward1.",
        ".ffw_layer_end.": ".feed_forward2.",
        ".attention.pre_attn_norm.": ".norm_pre_attn.",
        ".attention.post_norm.": ".norm_post_attn.",
        ".attention.attn.relative_position_embedding.pos_proj.weight": ".self_attn" + _KEYS,
        ".attention.attn.per_dim_scale": ".self_attn" + _SCALE,
        ".attention.attn.": ".self_attn.",
        ".attention.post.": ".self_attn.post.",
    }

    def _renamed(self, name: str) -> str:
        return _LAYER_NORM.sub(r"\1.norm_out.", super()._renamed(name))

    def _convolution(self, weight: Floats) -> Floats:
        return weight

    def _found(self) -> dict[str, str]:
        found = super()._found()
        table, norm = found.pop(_TABLE, None), found.pop(_TABLE_NORM, None)
        return found if table is None or norm is None else {**found, _MARKS: table}

    def _shape(self, name: str) -> tuple[int, ...]:
        shape = super()._shape(name)
        return (2 * shape[1], PATCH) if name == _MARKS else shape

    def read(self, name: str) -> Floats:
        """A fresh float32 copy of one tensor."""
        return self._marks() if name == _MARKS else super().read(name)

    def _marks(self) -> Floats:
        """What the projector reads of a row's first patch: see `models/audio/gemma3n.py`."""
        table = self.base.read(self._names[_MARKS])
        weight = self.base.read(super()._found()[_TABLE_NORM])
        made = np.zeros((2 * table.shape[1], PATCH), np.float32)
        made[: table.shape[1], REAL] = 1
        for number, row in ((FILL, self.fill), (LAST, self.last)):
            vector = table[row].astype(np.float64)
            scale = ((vector**2).mean() + self.eps) ** -0.5
            made[table.shape[1] :, number] = vector * scale * weight
        return made


def _query_scale(head_dim: int) -> float:
    return float(head_dim**-0.5 / np.log(2))
