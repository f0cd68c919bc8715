"""Small random multimodal checkpoints, made by `transformers`, and its answers about images."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

from mlcc.engine.request import ImageTile
from tests.compiler.models.helpers.checkpoints import SMALL, save_initialised

IMAGE = 130
SIDE, PATCH, MERGE = 32, 4, 2
ROWS = (SIDE // PATCH // MERGE) ** 2
"""Tokens of an image."""
ODD_SIDE = 173
"""Twelve patches of 14, and a rest: 3 x 3 of them are one of the ROWS."""
TOWER = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "image_size": SIDE,
    "patch_size": PATCH,
    "num_channels": 3,
    "hidden_act": "gelu_pytorch_tanh",
}
MEAN, STD = [0.4, 0.5, 0.6], [0.3, 0.25, 0.5]
PROCESSOR = {
    "image_mean": MEAN,
    "image_std": STD,
    "resample": 1,
    "size": {"longest_edge": 2 * SIDE},
    "max_image_size": {"longest_edge": SIDE},
    "do_image_splitting": True,
}


def smolvlm_odd(folder: Path) -> torch.nn.Module:
    """A SmolVLM with the odd sizes of the 2.2B: heads of 72, patches of 14, a rest at the edge."""
    tower = {**TOWER, "hidden_size": 144, "image_size": ODD_SIDE, "patch_size": 14}
    return smolvlm(folder, tower, 3)


def smolvlm(folder: Path, tower: dict[str, Any] = TOWER, merge: int = MERGE) -> torch.nn.Module:
    """A SmolVLM in `folder`, and transformers' model of it in float64."""
    config = transformers.SmolVLMConfig(
        text_config={"model_type": "llama", **SMALL, "rope_theta": 1000.0},
        vision_config=tower,
        scale_factor=merge,
        image_token_id=IMAGE,
        tie_word_embeddings=False,
        pad_token_id=0,
    )
    return _saved(transformers.SmolVLMForConditionalGeneration, config, folder)


def gemma3(folder: Path) -> torch.nn.Module:
    """A Gemma 3 in `folder`, and transformers' model of it in float64."""
    text = {
        "model_type": "gemma3_text",
        **SMALL,
        "head_dim": 16,
        "sliding_window": 20,
        "query_pre_attn_scalar": 16,
        "tie_word_embeddings": True,
        "layer_types": ["sliding_attention", "full_attention"],
    }
    config = transformers.Gemma3Config(
        text_config=text,
        vision_config=TOWER,
        mm_tokens_per_image=ROWS,
        image_token_id=IMAGE,
        image_token_index=IMAGE,
        boi_token_index=129,
        eoi_token_index=128,
        tie_word_embeddings=True,
    )
    return _saved(transformers.Gemma3ForConditionalGeneration, config, folder)


FAMILIES = {"smolvlm": smolvlm, "smolvlm-odd": smolvlm_odd, "gemma3": gemma3}


def given(family: str, ids: torch.Tensor, shown: np.ndarray[Any, Any]) -> dict[str, Any]:
    """What transformers' model takes beside the ids of a prompt."""
    if family == "gemma3":
        types = {"token_type_ids": (ids == IMAGE).long()}
        return types | ({"pixel_values": pixel_values(shown)} if len(shown) else {})
    return {"pixel_values": pixel_values(shown)[None]} if len(shown) else {}


def _saved(kind: Any, config: Any, folder: Path) -> torch.nn.Module:
    config._attn_implementation = "eager"
    torch.manual_seed(0)
    oracle = save_initialised(kind(config), folder)
    words = {f"w{i}": i for i in range(IMAGE)} | {"<image>": IMAGE}
    Tokenizer(WordLevel(words, "w0")).save(str(folder / "tokenizer.json"))
    side = config.vision_config.image_size
    sizes = {"size": {"longest_edge": 2 * side}, "max_image_size": {"longest_edge": side}}
    (folder / "preprocessor_config.json").write_text(json.dumps(PROCESSOR | sizes))
    return oracle


def pictures(family: str, count: int) -> np.ndarray[Any, Any]:
    """uint8 [count, side, side, 3], of the family's side."""
    side = ODD_SIDE if family == "smolvlm-odd" else SIDE
    return np.random.default_rng(0).integers(0, 256, (count, side, side, 3), np.uint8)


def tile(picture: np.ndarray[Any, Any], start: int) -> ImageTile:
    """A picture that stands for ROWS tokens from `start` on."""
    pixels = picture.tobytes()
    return ImageTile(start, ROWS, pixels[:32], pixels, *picture.shape[:2])


def pixel_values(found: np.ndarray[Any, Any]) -> torch.Tensor:
    """f64 [count, 3, SIDE, SIDE], as the image processor normalises pixels."""
    scaled = (found / 255.0 - MEAN) / STD
    return torch.tensor(scaled.transpose(0, 3, 1, 2))
