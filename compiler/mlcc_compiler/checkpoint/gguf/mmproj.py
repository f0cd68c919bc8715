"""The towers of a GGUF model, of vision and of audio: a file of its own, which llama.cpp calls
mmproj.

It is read as the towers of a Hugging Face checkpoint (`projectors.py`, `audio_projector.py`,
`sound_projectors.py`), and `towers/` does the rest. Streaming, as `tensors.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from mlcc.errors import CheckpointError, MlccError, UnsupportedError
from mlcc_compiler.checkpoint.gguf import audio_projector
from mlcc_compiler.checkpoint.gguf.dequantize import check_readable, to_float
from mlcc_compiler.checkpoint.gguf.files import MMPROJ, SUFFIX, all_parts, stem_of
from mlcc_compiler.checkpoint.gguf.header import GgufTensor, Value
from mlcc_compiler.checkpoint.gguf.keys import Keys
from mlcc_compiler.checkpoint.gguf.orders import rotary
from mlcc_compiler.checkpoint.gguf.projectors import DEEPSTACK, PROJECTORS, Projector
from mlcc_compiler.checkpoint.gguf.sound_projectors import SOUND_PROJECTORS, SoundProjector
from mlcc_compiler.checkpoint.gguf.tensors import blocks_of

Floats = npt.NDArray[np.float32]
Config = dict[str, Any]

_SIZES = {
    "embedding_length": "hidden_size",
    "block_count": "num_hidden_layers",
    "attention.head_count": "num_attention_heads",
    "patch_size": "patch_size",
}
_BLOCK = re.compile(r"v\.blk\.(\d+)\.(\w+)\.(weight|bias|(?:in|out)put_(?:min|max))")
_DEEPSTACK = re.compile(r"v\.deepstack\.(\d+)\.(norm|fc1|fc2)\.(weight|bias)")
_LAYER_SCALES = {"ls1": "lambda_1", "ls2": "lambda_2"}
_SECOND_FRAME = "v.patch_embd.weight.1"
_MADE_FOR_LLAMA_CPP = ("v.token_embd.img_break",)
"""Rows of the language model's own embedding."""
_SEES_AND_HEARS = "gemma4v"
_OF_SOUND = ("a.", "mm.a.")
"""Beginnings of the names of an audio tower's tensors."""
_PREFERRED = ("F16", "BF16", "F32")
"""Of several files of one tower, the smallest that lost nothing."""
_ANY_SIZE = 560
"""Side in pixels of images of any size, as llama.cpp's converter writes it; not used."""
_GENERIC = ("", "model")


@dataclass(frozen=True)
class MmprojTensor:
    """One tensor of the tower: where it is in the file, and the converter's changes to undo."""

    sources: tuple[str, ...]
    shape: tuple[int, ...]
    frames: bool = False
    """Whether the sources are the filters of one frame each; else they follow by rows."""
    added: float = 0.0
    heads: int = 0
    """Heads whose rows are in rotary pairs; 0 = rows are in order."""
    softplus: bool = False
    """Whether the values are softplus of the model's."""


@dataclass(frozen=True)
class MmprojTensors:
    """Tensors under Hugging Face's names."""

    found: Mapping[str, GgufTensor]
    places: Mapping[str, MmprojTensor]

    @cached_property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {name: place.shape for name, place in self.places.items()}

    def check_dtypes(self, names: Iterable[str]) -> None:
        """Raises UnsupportedError if one of the tensors is in a format that `read` refuses."""
        for name in names:
            for source in self.places[name].sources:
                check_readable(self.found[source])

    def read(self, name: str) -> Floats:
        """A fresh float32 copy of one tensor. Raises CheckpointError."""
        place = self.places[name]
        parts = [
            to_float(blocks_of(self.found[source]), self.found[source]).reshape(
                self.found[source].shape
            )
            for source in place.sources
        ]
        if place.frames:
            return np.stack(parts, axis=2).astype(np.float32)
        whole = np.concatenate(parts).astype(np.float32).reshape(place.shape)
        if place.heads:
            whole = whole[rotary(place.heads)(len(whole))]
        if place.softplus:
            return np.log(np.expm1(whole.astype(np.float64))).astype(np.float32)
        return whole - np.float32(place.added) if place.added else whole


@dataclass(frozen=True)
class Mmproj:
    """A tower's file, read as a part of a Hugging Face checkpoint."""

    path: Path
    outer_config: Config
    preprocessor: Config
    tensors: MmprojTensors = field(repr=False)
    notes: tuple[str, ...] = ()
    """About what the file has and is not read."""

    @classmethod
    def open(
        cls, path: Path, architecture: str, text: Mapping[str, Any], tokens: Sequence[str]
    ) -> Mmproj:
        """architecture, text, tokens: the language model's, GGUF's name, config.json and
        vocabulary. Raises CheckpointError, and UnsupportedError for a tower that is not built or
        of another model."""
        metadata, found = all_parts(path)
        keys = Keys(metadata, "clip", {name: tensor.shape for name, tensor in found.items()})
        kind = _kind(path, keys)
        if kind in SOUND_PROJECTORS:
            sounds = SOUND_PROJECTORS[kind]
            _check_text(path, kind, sounds.texts, architecture)
            width = keys.whole("audio.projection_dim", text["hidden_size"])
            _check_model(path, width, text, sounds.token, tokens)
            return cls._hears(path, keys, sounds, tokens.index(sounds.token), found)
        projector = PROJECTORS[kind]
        _check_text(path, kind, projector.texts, architecture)
        width = text["hidden_size"]
        if projector.last:
            width = keys.shapes.get(projector.last, (width,))[0]
        else:
            width = keys.whole("vision.projection_dim", width)
        _check_model(path, width, text, projector.image_token, tokens)
        vision = {own: keys.whole(f"vision.{key}") for key, own in _SIZES.items()}
        vision["image_size"] = keys.whole("vision.image_size", _ANY_SIZE)
        _check_sizes(path, keys, vision)
        swapped = _swapped(keys, projector, vision["hidden_size"])
        vision["intermediate_size"] = _inner(path, keys, swapped)
        _rename_sizes(vision, projector)
        outer = projector.config(keys, vision, dict(text))
        places = _Map(projector, keys, vision, swapped).read()
        sound = _sound(keys, tokens) if kind == _SEES_AND_HEARS else {}
        if sound:
            places |= _places_of_sound(keys.shapes)
        token = tokens.index(projector.image_token)
        channels = {f"image_{name}": _channels(keys, f"vision.image_{name}")
                    for name in ("mean", "std")}  # fmt: skip
        return cls(
            path,
            {**outer, "vision_config": vision, "image_token_id": token, **sound},
            {**channels, **projector.processor(keys, vision)},
            MmprojTensors(found, places),
            () if sound else _unread(path, found),
        )

    @classmethod
    def _hears(
        cls,
        path: Path,
        keys: Keys,
        projector: SoundProjector,
        token: int,
        found: Mapping[str, GgufTensor],
    ) -> Mmproj:
        """A file of which the audio tower is read. Raises CheckpointError."""
        places = {}
        for name, own in projector.names(keys.shapes):
            shape = keys.shapes[name]
            if own.endswith(".bias"):  # a convolution's is a column
                shape = (prod(shape),)
            places[own] = MmprojTensor((name,), shape)
        outer = {"model_type": projector.model_type, "audio_token_id": token}
        sees = any(name.startswith("v.") for name in keys.shapes)
        note = f"the vision tower in {path.name} is not built: the model hears and sees nothing"
        return cls(
            path,
            {**outer, "audio_config": projector.config(keys)},
            {},
            MmprojTensors(found, places),
            (note,) if sees else (),
        )


def find_mmproj(model: Path) -> Path | None:
    """The tower's file beside a model's, by their names: "mmproj" and the model's name, or
    "mmproj" alone, both without the quantization; of several the one in the smallest floats."""
    wanted = {stem_of(model.name), *_GENERIC}
    try:
        files = sorted(model.parent.glob("*" + SUFFIX))
    except OSError:
        return None
    near = [path for path in files if MMPROJ.search(path.name) and stem_of(path.name) in wanted]
    upper = {path: path.stem.upper() for path in near}
    ends = [[path for path in near if re.search(rf"[-._]{kind}$", upper[path])]
            for kind in _PREFERRED]  # fmt: skip
    return next((path for paths in [*ends, near] for path in paths), None)


def try_mmproj(
    path: Path, architecture: str, text: Mapping[str, Any], tokens: Sequence[str]
) -> tuple[Mmproj | None, tuple[str, ...]]:
    """The tower of a file that was found and not asked for, and notes about it."""
    try:
        found = Mmproj.open(path, architecture, text, tokens)
    except MlccError as error:
        return None, (f"the model reads text only: {error.message}",)
    towers, them = "vision tower", "it"
    if "vision_config" not in found.outer_config:
        note = f"{path.name} has its audio tower; --no-vision leaves it out"
        return found, (note, *found.notes)
    if "audio_config" in found.outer_config:
        towers, them = "towers of vision and audio", "them"
    note = f"{path.name} has its {towers}; --no-vision leaves {them} out"
    return found, (note, *found.notes)


def _sound(keys: Keys, tokens: Sequence[str]) -> Config:
    """Fields of config.json of the audio tower; {} if there is none that is read."""
    audio = audio_projector.config_of(keys) if audio_projector.TOKEN in tokens else None
    if audio is None:
        return {}
    return {"audio_config": audio, "audio_token_id": tokens.index(audio_projector.TOKEN)}


def _places_of_sound(shapes: Mapping[str, tuple[int, ...]]) -> dict[str, MmprojTensor]:
    """The audio tower's tensors, by Hugging Face's names."""
    found = {}
    for name, own in audio_projector.names_of(shapes):
        shape, soft = shapes[name], own.endswith(audio_projector.SOFTPLUS)
        if own.endswith(audio_projector.DEPTHWISE) and len(shape) == 2:
            shape = (shape[0], 1, shape[1])
        found[own] = MmprojTensor((name,), shape, softplus=soft)
    return found


def _unread(path: Path, names: Iterable[str]) -> tuple[str, ...]:
    if not any(name.startswith(_OF_SOUND) for name in names):
        return ()
    return (
        f"the audio tower in {path.name} is not read: the model hears nothing; the checkpoint of "
        "Hugging Face does",
    )


def _check_text(path: Path, kind: str, texts: Sequence[str], architecture: str) -> None:
    """Raises UnsupportedError for a tower of another model."""
    if architecture not in texts:
        raise UnsupportedError(
            f"{path}: is a tower of the kind {kind!r}, and the model is a {architecture}; give "
            "the mmproj file that was published with the model"
        )


def _check_model(
    path: Path, width: int, text: Mapping[str, Any], token: str, tokens: Sequence[str]
) -> None:
    """Raises CheckpointError for rows of another width than the model reads, and UnsupportedError
    for a vocabulary without the token that stands for them."""
    if width != text["hidden_size"]:
        raise CheckpointError(
            f"{path}: makes rows of {width} numbers, and the model reads rows of "
            f"{text['hidden_size']}; give the mmproj file that was published with the model"
        )
    if token not in tokens:
        raise UnsupportedError(
            f"{path}: the model's vocabulary has no {token!r}, which stands for an image or sound; "
            "compile the checkpoint of Hugging Face, or add --no-vision"
        )


def _kind(path: Path, keys: Keys) -> str:
    """The kind of the file's tower, which is built. Raises CheckpointError, UnsupportedError."""
    kinds = (keys.get(f"{part}projector_type") for part in ("vision.", "", "audio."))
    kind = next((each for each in kinds if each), None)
    if not isinstance(kind, str):
        raise CheckpointError(
            f"{path}: has no clip.projector_type, so it is no tower; give the mmproj file "
            "that was published with the model"
        )
    if kind not in (*PROJECTORS, *SOUND_PROJECTORS):
        raise UnsupportedError(
            f"{path}: a tower of the kind {kind[:40]!r} is not built; these are: "
            f"{', '.join((*PROJECTORS, *SOUND_PROJECTORS))}; compile the checkpoint of Hugging "
            "Face, or add --no-vision"
        )
    return kind


def _check_sizes(path: Path, keys: Keys, vision: Config) -> None:
    """Raises CheckpointError for layers and patches that the tensors do not have."""
    layers, patch = vision["num_hidden_layers"], vision["patch_size"]
    if (last := f"v.blk.{layers - 1}.ln1.weight") not in keys.shapes:
        raise CheckpointError(
            f"{path}: is of {layers} layers and has no tensor {last!r}; fetch it again"
        )
    shape = keys.shapes.get("v.patch_embd.weight", ())
    if shape[-2:] != (patch, patch) and shape[1:] != (3 * patch**2,):
        raise CheckpointError(
            f"{path}: has patches of {patch} pixels a side and a 'v.patch_embd.weight' of the "
            f"shape {[*shape]}; fetch it again"
        )


def _rename_sizes(vision: Config, projector: Projector) -> None:
    for common, own in projector.sizes.items():
        vision[own] = vision.pop(common)


def _swapped(keys: Keys, projector: Projector, hidden: int) -> bool:
    """Whether an MLP's first matrix is called ffn_down, as in files of 2024 and early 2025."""
    down = keys.shapes.get("v.blk.0.ffn_down.weight", (hidden,))
    return "ffn_gate" not in projector.layer and down[0] != hidden


def _inner(path: Path, keys: Keys, swapped: bool) -> int:
    """The width of the MLPs, by their tensors: the key is wrong in files of Qwen2-VL."""
    name = f"v.blk.0.ffn_{'down' if swapped else 'up'}.weight"
    if name not in keys.shapes:
        raise CheckpointError(f"{path}: has no tensor {name!r}; fetch it again")
    return keys.shapes[name][0]


def _channels(keys: Keys, key: str) -> list[float]:
    found: Value | None = keys.get(key)
    values = found.tolist() if isinstance(found, np.ndarray) else found
    if not isinstance(values, list) or len(values) != 3:
        raise keys.refuse(key, "three numbers")
    if not all(isinstance(value, float | int) and not isinstance(value, bool) for value in values):
        raise keys.refuse(key, "three numbers")
    return [round(float(value), 7) for value in values]  # of a float32, as it was written


class _Map:
    """The places of a file's tensors, by Hugging Face's names."""

    def __init__(self, projector: Projector, keys: Keys, vision: Config, swapped: bool) -> None:
        self.projector, self.shapes, self.swapped = projector, keys.shapes, swapped
        self.heads = vision.get("num_attention_heads") or vision["num_heads"]
        self.deepstack = vision.get("deepstack_visual_indexes", [])
        self.found: dict[str, MmprojTensor] = {}

    def read(self) -> dict[str, MmprojTensor]:
        for name in self.shapes:
            if name in _MADE_FOR_LLAMA_CPP or name == _SECOND_FRAME:
                continue
            if name.startswith(_OF_SOUND):
                continue
            self._place(name)
        return self.found

    def _place(self, name: str) -> None:
        if match := _BLOCK.fullmatch(name):
            return self._of_layer(name, match[1], match[2], match[3])
        if (match := _DEEPSTACK.fullmatch(name)) and int(match[1]) in self.deepstack:
            merger = f"visual.deepstack_merger_list.{self.deepstack.index(int(match[1]))}"
            return self._put(f"{merger}.{DEEPSTACK[match[2]]}.{match[3]}", name)
        if name in self.projector.exact:
            return self._put(self.projector.exact[name], name)
        stem, _, kind = name.rpartition(".")
        known = self.projector.outer.get(stem)
        return self._put(f"{known}.{kind}" if known else self.projector.root + name, name)

    def _of_layer(self, name: str, number: str, part: str, kind: str) -> None:
        layer, parts = self.projector.layer, ("attn_q", "attn_k", "attn_v")
        begin = f"{self.projector.layers}.{number}."
        if part in _LAYER_SCALES:
            return self._put(begin + _LAYER_SCALES[part], name)
        if part in parts and part not in layer and "attn_qkv" in layer:
            if part == "attn_q":
                sources = [f"v.blk.{number}.{each}.{kind}" for each in parts]
                self._put(begin + f"{layer['attn_qkv']}.{kind}", *sources)
            return None
        if self.swapped and part in ("ffn_up", "ffn_down"):
            part = "ffn_down" if part == "ffn_up" else "ffn_up"
        heads = self.heads if part in self.projector.pairs else 0
        return self._put(begin + f"{layer.get(part, part)}.{kind}", name, heads=heads)

    def _put(self, target: str, *sources: str, heads: int = 0) -> None:
        shapes = [self.shapes.get(source) for source in sources]
        if None in shapes:
            raise CheckpointError(
                f"the mmproj file has {sources[0]!r} and lacks one of {', '.join(sources[1:])}; "
                "fetch it again"
            )
        first, *others = [shape for shape in shapes if shape is not None]
        if any(shape[1:] != first[1:] for shape in others):
            raise CheckpointError(
                f"the mmproj file's {', '.join(sources)} are of different widths; fetch it again"
            )
        shape, frames = (sum(s[0] for s in (first, *others)), *first[1:]), False
        if sources == ("v.patch_embd.weight",) and _SECOND_FRAME in self.shapes:
            if self.shapes[_SECOND_FRAME] != first or len(first) != 4:
                raise CheckpointError(f"the mmproj file's {_SECOND_FRAME!r} is of another shape")
            sources, frames = (*sources, _SECOND_FRAME), True
            shape = (*first[:2], 2, *first[2:])
        added = self.projector.added.get(target, 0.0)
        self.found[target] = MmprojTensor(sources, shape, frames, added, heads)
