"""A Hugging Face model folder, opened: config, tokenizer, chat templates, tensors.

Reads each fact from whichever of HF's places has it; decides nothing about models. Downloading is
`hub.py`, tensor files are `checkpoint/safetensors.py`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from mlcc.errors import CheckpointError
from mlcc.util.files import real
from mlcc_compiler.checkpoint.files import find, read, read_object
from mlcc_compiler.checkpoint.formats.open import check_method, open_tensors
from mlcc_compiler.checkpoint.name_maps import name_rules
from mlcc_compiler.checkpoint.safetensors import Tensors
from mlcc_compiler.checkpoint.tokenizer import mistral_template
from mlcc_compiler.checkpoint.tokenizer.added_tokens import AddedTokens, read_added_tokens
from mlcc_compiler.checkpoint.tokenizer.chat_templates import DEFAULT, read_chat_templates
from mlcc_compiler.checkpoint.tokenizer.tokenizer_files import (
    check_tokenizer,
    read_tokenizer,
    token_ids,
)
from mlcc_compiler.checkpoint.view import view_tensors

PREPROCESSOR, PROCESSOR = "preprocessor_config.json", "processor_config.json"
LICENCE_NAMES = ("LICENSE", "LICENCE", "LICENSE.txt", "LICENSE.md", "LICENCE.txt", "LICENCE.md")
MAX_LICENCE_BYTES = 4 << 20
_ANYBODYS = re.compile(
    r"models?|checkpoints?(-\d+)?|snapshots?|final|outputs?|out|hf|weights|merged|[0-9a-f]{40}|"
)
"""Generic folder names, which are no model names."""
_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


@dataclass(frozen=True)
class Checkpoint:
    """`config` is flat: text_config's fields over the outer ones. `outer_config` is as found."""

    folder: Path
    config: dict[str, Any]
    outer_config: dict[str, Any]
    generation_config: dict[str, Any]
    tokenizer_config: dict[str, Any]
    chat_templates: dict[str, str]
    notes: tuple[str, ...] = ()
    """Messages for the user about how the files are read."""

    @classmethod
    def open(cls, folder: str | Path) -> Checkpoint:
        """Read the small files. Raises CheckpointError or UnsupportedError; opens no tensor."""
        path = Path(folder)
        _check_folder(path)
        outer, notes = _with_quantization(path, _thinker(read_object(path, "config.json") or {}))
        check_method(path, outer)
        tokenizer_config = read_object(path, "tokenizer_config.json") or {}
        processor = read_object(path, "chat_template.json") or {}
        templates = read_chat_templates(path, tokenizer_config, processor)
        if not templates and outer.get("model_type") in mistral_template.FAMILIES:
            templates = {DEFAULT: mistral_template.VOXTRAL}
            notes = (*notes, mistral_template.NOTE)
        return cls(
            folder=path,
            config=flatten_config(outer),
            outer_config=outer,
            generation_config=read_object(path, "generation_config.json") or {},
            tokenizer_config=tokenizer_config,
            chat_templates=templates,
            notes=notes,
        )

    @property
    def name(self) -> str:
        """The model's name: org/name inside the hub's cache, or the folder's; if that is generic
        ("model"), the config's name, or the parent folder's."""
        folder = real(self.folder)
        if folder.parent.name == "snapshots" and folder.parents[1].name.startswith("models--"):
            return folder.parents[1].name.removeprefix("models--").replace("--", "/")
        if not _ANYBODYS.fullmatch(folder.name):
            return folder.name
        hub_name = self.outer_config.get("_name_or_path")
        if isinstance(hub_name, str) and _HUB_NAME.fullmatch(hub_name):
            return hub_name
        return folder.parent.name or folder.name

    @cached_property
    def tensors(self) -> Tensors:
        """The tensor files, opened lazily, under the models' names. Raises CheckpointError,
        UnsupportedError."""
        found = open_tensors(self.folder, self.outer_config)
        return view_tensors(found, name_rules(self.config, found.shapes))

    @property
    def vision_tensors(self) -> Any:
        """The tensors among which its vision tower's are."""
        return self.tensors

    @property
    def preprocessor(self) -> dict[str, Any] | None:
        """The image processor's settings: a file of their own, or as transformers 5 saves them."""
        own = read_object(self.folder, PREPROCESSOR)
        if own is not None:
            return own
        joined = (read_object(self.folder, PROCESSOR) or {}).get("image_processor")
        return joined if isinstance(joined, dict) else None

    @property
    def quantized(self) -> bool:
        """Whether it holds matrices that are already quantized, in a scheme or not: by default they
        keep their scheme, or the nearest one."""
        return self.tensors.is_quantized

    @cached_property
    def tokenizer(self) -> bytes:
        """tokenizer.json's bytes. Raises UnsupportedError if there is only another format."""
        return self._tokenizer[0]

    @property
    def tokenizer_notes(self) -> list[str]:
        """Messages for the user about tokens from other files than tokenizer.json."""
        return self._tokenizer[1]

    @cached_property
    def _tokenizer(self) -> tuple[bytes, list[str]]:
        vocab_size = self.config.get("vocab_size")
        rows = vocab_size if isinstance(vocab_size, int) else None
        return read_tokenizer(self.folder, self.added_tokens, rows)

    @cached_property
    def added_tokens(self) -> AddedTokens:
        """Tokens of the files beside tokenizer.json. Raises CheckpointError."""
        return read_added_tokens(self.folder, self.tokenizer_config)

    def check_tokenizer(self) -> None:
        """Load the tokenizer as the runtime will, and test it. Raises CheckpointError."""
        check_tokenizer(self.folder, self.tokenizer)

    @cached_property
    def special_tokens(self) -> dict[str, str]:
        """`bos_token`, `eos_token`, `pad_token`, ... as text, for the chat template."""
        return self.added_tokens.named

    @property
    def bos_token(self) -> str | None:
        return self.special_tokens.get("bos_token")

    @cached_property
    def eos_token_ids(self) -> tuple[int, ...]:
        """All end-of-sequence ids: generation_config's, else config's; and the tokenizer's."""
        named = _ids(self.generation_config) or _ids(self.config)
        text = self.special_tokens.get("eos_token")
        if text is not None:
            named += [i for i in [token_ids(self.tokenizer).get(text)] if i is not None]
        return tuple(dict.fromkeys(named))

    @property
    def chat_template(self) -> str | None:
        """The default template; None for a base model."""
        return self.chat_templates.get(DEFAULT)

    @cached_property
    def licence(self) -> tuple[str, bytes] | None:
        """Name and bytes of the licence, if the folder has one. Raises CheckpointError."""
        for name in LICENCE_NAMES:
            if (data := read(self.folder, name, MAX_LICENCE_BYTES)) is not None:
                return name, data
        return None


_QUANTIZERS = {"quantize_config.json": "gptq", "quant_config.json": "awq"}
"""Files in which AutoGPTQ and AutoAWQ left their settings; vLLM reads them too."""
_OF_NVIDIA = "hf_quant_config.json"
"""That of older versions of NVIDIA's Model Optimizer."""


def _with_quantization(path: Path, outer: dict[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The config with its quantization settings, from `text_config`, the older key of
    compressed-tensors or an older file if it has none; and a note."""
    inner = outer.get("text_config")
    own = inner.get("quantization_config") if isinstance(inner, dict) else None
    for given in (outer.get("quantization_config"), own, outer.get("compression_config")):
        if isinstance(given, dict):
            return {**outer, "quantization_config": given}, ()
    for name, method in _QUANTIZERS.items():
        if (found := read_object(path, name)) is not None:
            settings = {"quant_method": found.get("method") or method, **found}
            note = f"config.json has no quantization_config; that of {name} is used"
            return {**outer, "quantization_config": settings}, (note,)
    if isinstance(of_nvidia := read_object(path, _OF_NVIDIA), dict):
        settings = {"quant_method": "modelopt", **(of_nvidia.get("quantization") or {})}
        note = f"config.json has no quantization_config; that of {_OF_NVIDIA} is used"
        return {**outer, "quantization_config": settings}, (note,)
    return outer, ()


def _thinker(whole: dict[str, Any]) -> dict[str, Any]:
    """The config of Qwen2.5-Omni's thinker, which reads and writes text; its talker speaks."""
    inner = whole.get("thinker_config")
    return {**whole, **inner} if isinstance(inner, dict) else whole


def flatten_config(outer: dict[str, Any]) -> dict[str, Any]:
    """A multimodal config's text part, completed by the outer fields. A rope beside `text_config`
    is not used, as in transformers: it would overrule the text part's own."""
    inner = outer.get("text_config")
    if inner is None:
        return dict(outer)
    if not isinstance(inner, dict):
        raise CheckpointError("config.json: text_config must be an object; fetch it again")
    left = ("text_config", "rope_parameters", "rope_scaling", "rope_theta")
    found = {**{key: value for key, value in outer.items() if key not in left}, **inner}
    if outer.get("tie_word_embeddings"):  # the whole model's head, whatever the text part says
        found["tie_word_embeddings"] = True
    return found


def _check_folder(path: Path) -> None:
    if not path.exists():
        raise CheckpointError(f"{path}: no such folder; for a model of the hub type hf://org/name")
    if not path.is_dir():
        raise CheckpointError(
            f"{path}: is a file; MODEL is a Hugging Face folder, a GGUF file or hf://org/name"
        )
    if find(path, "config.json") is None:
        compiled = " (it is a compiled model)" if (path / "mlcc.json").is_file() else ""
        raise CheckpointError(
            f"{path}: has no config.json{compiled}; MODEL is a Hugging Face folder or a GGUF file"
        )


def _ids(config: dict[str, Any]) -> list[int]:
    value = config.get("eos_token_id")
    values = value if isinstance(value, list) else [value]
    return [i for i in values if type(i) is int and i >= 0]
