"""A small random SmolVLM with a tokenizer and a chat template, and transformers' answers about
images, from their bytes to text."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
import transformers
from PIL import Image

from tests.compiler.models.helpers.checkpoints import SMALL, save_initialised
from tests.compiler.vision.checkpoints import MEAN, MERGE, PATCH, PROCESSOR, SIDE, STD, TOWER
from tests.runtime.multimodal.helpers.oracles import processor_of_transformers, tokenizer_of
from tests.runtime.multimodal.helpers.pictures import idefics3

VOCAB, NEW = 400, 4
INFO = replace(
    idefics3(patch_size=PATCH, merge_size=MERGE, image_size=SIDE, longest_edge=2 * SIDE),
    mean=tuple(MEAN),
    std=tuple(STD),
)
TEMPLATE = (
    "{% for m in messages %}{{ m['role'] | capitalize }}"
    "{{ ':' if m['content'][0]['type'] == 'image' else ': ' }}{% for part in m['content'] %}"
    "{{ part['text'] if part['type'] == 'text' else '<image>' }}"
    "{% endfor %}<end_of_utterance>\n{% endfor %}"
    "{% if add_generation_prompt %}Assistant:{% endif %}"
)
"""In the shape of SmolVLM's own: it takes content as parts only."""


class Made(NamedTuple):
    folder: Path
    """The checkpoint."""
    model: Any
    """transformers', in float64."""
    processor: Any
    tokenizer: Any


def save_smolvlm(folder: Path) -> Made:
    """The checkpoint in `folder`, and transformers' parts of it."""
    processor, tokenizer = processor_of_transformers(INFO)
    images = processor.image_processor
    images.do_rescale = images.do_normalize = True
    images.image_mean, images.image_std = MEAN, STD
    token = tokenizer.convert_tokens_to_ids("<image>")
    text = {**SMALL, "vocab_size": VOCAB, "max_position_embeddings": 512, "eos_token_id": 2}
    config = transformers.SmolVLMConfig(
        text_config={"model_type": "llama", **text, "rope_theta": 1000.0},
        vision_config=TOWER,
        scale_factor=MERGE,
        image_token_id=token,
        tie_word_embeddings=False,
        pad_token_id=0,
    )
    config._attn_implementation = "eager"
    torch.manual_seed(0)
    model = save_initialised(transformers.SmolVLMForConditionalGeneration(config), folder)
    tokenizer_of(INFO).save_pretrained(folder)
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    (folder / "preprocessor_config.json").write_text(json.dumps(PROCESSOR))
    return Made(folder, model, processor, tokenizer)


def expected(made: Made, text: str, files: Sequence[bytes]) -> str:
    """transformers' greedy answer to a rendered conversation; image tokens are left out."""
    pictures = [Image.open(io.BytesIO(data)) for data in files]
    given = {} if not pictures else {"images": [pictures]}
    inputs = made.processor(text=[text], **given, return_tensors="pt")
    ids, pixels = inputs["input_ids"], inputs.get("pixel_values")
    shown = {} if pixels is None else {"pixel_values": pixels.double()}
    answer: list[int] = []
    for _ in range(NEW):
        with torch.no_grad():
            logits = made.model(input_ids=ids, **shown).logits[0, -1]
        logits[made.processor.image_token_id] -= 100
        answer.append(int(logits.argmax()))
        ids = torch.cat([ids, torch.tensor([answer[-1:]])], 1)
    return str(made.tokenizer.decode(answer, skip_special_tokens=True))
