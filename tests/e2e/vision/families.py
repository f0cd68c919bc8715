"""A small random checkpoint of each family that sees, with a tokenizer of letters and a chat
template, and transformers' answers to conversations with images, from their bytes to text."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from mlcc.artifact.schema import VisionInfo
from tests.compiler.vision.checkpoints import (
    ANY_SIZE,
    FAMILIES,
    IMAGE,
    IN_LINES,
    MEAN,
    OF_AREA,
    STD,
)
from tests.runtime.multimodal.helpers.oracles import processor_of_transformers

LONGEST = 512
"""The models' context."""
LETTERS = "\n" + "".join(map(chr, range(32, 127)))
FIRST = 3
"""The id of the first letter, after those of the ends."""
_TILES = [f"<row_{row}_col_{column}>" for row in range(1, 5) for column in range(1, 5)]
_SPECIAL = {
    "smolvlm": [*_TILES, "<global-img>", "<fake_token_around_image>", "<image>"],
    "gemma3": ["<end_of_image>", "<start_of_image>", "<image_soft_token>"],
    "gemma4": ["<|video|>", "<image|>", "<|image>", "<|image|>"],
    "llama4": [
        *("<|image_start|>", "<|image|>", "<|tile_x_separator|>", "<|tile_y_separator|>"),
        *("<|image_end|>", "<|patch|>"),
    ],
    "llava": ["<image>"],
    "llava_onevision": ["<video>", "<image>"],
    "internvl": ["<video>", "<img>", "</img>", "<IMG_CONTEXT>"],
    "pixtral": ["[IMG_END]", "[IMG_BREAK]", "[IMG]"],
    "qwen": ["<|vision_end|>", "<|vision_start|>", "<|video_pad|>", "<|image_pad|>"],
}
"""Up to the id of the image's token."""
_MARKS = {
    "smolvlm": "<image>",
    "gemma3": "<start_of_image>",
    "gemma4": "<|image|>",
    "llama4": "<|image|>",
    "llava": "<image>",
    "llava_onevision": "<image>",
    "internvl": "<IMG_CONTEXT>",
    "pixtral": "[IMG]",
    "qwen": "<|vision_start|><|image_pad|><|vision_end|>",
}
"""What a chat template writes where an image is."""


def _kind(family: str) -> str:
    if family in IN_LINES:
        return "pixtral"
    if family in OF_AREA:
        return "gemma4"
    return "qwen" if family in ANY_SIZE else family


def _tokenizer(family: str) -> Tokenizer:
    """One token for each letter, and the family's own."""
    special = _SPECIAL[_kind(family)]
    if family == "qwen2_vl":  # its checkpoints here have the video's token at 129 too
        assert special[-2] == "<|video_pad|>"
    words = {letter: FIRST + at for at, letter in enumerate(LETTERS)}
    words |= {"<unk>": 0, "<bos>": 1, "<eos>": 2}
    words |= {name: IMAGE + 1 - len(special) + at for at, name in enumerate(special)}
    made = Tokenizer(models.WordLevel(words, "<unk>"))
    made.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    made.decoder = decoders.Fuse()
    made.add_special_tokens(["<unk>", "<bos>", "<eos>", *special])
    return made


def save_family(family: str, folder: Path) -> Any:
    """The checkpoint in `folder`; returns transformers' model of it in float64."""
    model = FAMILIES[family](folder)
    config = json.loads((folder / "config.json").read_text())
    config["text_config"]["max_position_embeddings"] = LONGEST
    (folder / "config.json").write_text(json.dumps(config))
    _tokenizer(family).save(str(folder / "tokenizer.json"))
    template = (
        "{% for m in messages %}{{ m['role'] }}:{% if m['content'] is string %}"
        "{{ m['content'] }}{% else %}{% for part in m['content'] %}"
        "{{ part['text'] if part['type'] == 'text' else MARK }}{% endfor %}{% endif %}"
        "{{ '\\n' }}{% endfor %}{% if add_generation_prompt %}assistant:{% endif %}"
    )
    marked = template.replace("MARK", repr(_MARKS[_kind(family)]))
    (folder / "chat_template.jinja").write_text(marked)
    return model


@dataclass
class Oracle:
    """transformers' processor and model."""

    family: str
    model: Any
    info: VisionInfo

    def __post_init__(self) -> None:
        more: dict[str, Any] = {}
        if self.family == "gemma3":
            names = ("eoi_token", "boi_token", "image_token")
            more["extra_special_tokens"] = dict(zip(names, _SPECIAL["gemma3"], strict=True))
        if self.family in OF_AREA:
            more["pad_token"] = "<unk>"
        tokenizer = PreTrainedTokenizerFast(tokenizer_object=_tokenizer(self.family), **more)
        self.processor, self.tokenizer = processor_of_transformers(self.info, tokenizer)
        images = self.processor.image_processor
        images.do_rescale, images.do_normalize = True, self.family not in OF_AREA
        images.image_mean, images.image_std = MEAN, STD
        images.temporal_patch_size = 2  # of Qwen's: an image is a frame shown twice

    def answer(self, text: str, files: Sequence[bytes], tokens: int) -> tuple[str, list[float]]:
        """The greedy answer, in letters only, to a rendered conversation with its images at the
        marks, and the log-probabilities of its tokens."""
        given = {"images": [[Image.open(io.BytesIO(data)) for data in files]]} if files else {}
        inputs = dict(self.processor(text=[text], **given, return_tensors="pt"))
        ids = inputs.pop("input_ids")
        inputs.pop("attention_mask", None)
        if "pixel_values" in inputs:
            inputs["pixel_values"] = inputs["pixel_values"].double()
        answer, logprobs = list[int](), list[float]()
        for _ in range(tokens):
            more = self._types(ids)
            with torch.no_grad():
                logits = self.model(input_ids=ids, **{**inputs, **more}).logits[0, -1]
            logits[:FIRST] = logits[FIRST + len(LETTERS) :] = -1e20
            answer.append(int(logits.argmax()))
            logprobs.append(float(torch.log_softmax(logits, -1).max()))
            ids = torch.cat([ids, torch.tensor([answer[-1:]])], 1)
        return "".join(LETTERS[token - FIRST] for token in answer), logprobs

    def _types(self, ids: torch.Tensor) -> dict[str, Any]:
        types = (ids == IMAGE).long()
        if self.family in (*ANY_SIZE, *OF_AREA):
            return {"mm_token_type_ids": types.int()}
        return {"token_type_ids": types} if self.family == "gemma3" else {}

    def rendered(self, *turns: tuple[str, str]) -> str:
        """As the template does, of roles and texts in which @ is an image."""
        mark = _MARKS[_kind(self.family)]
        lines = "".join(f"{role}:{text.replace('@', mark)}\n" for role, text in turns)
        return f"{lines}assistant:"
