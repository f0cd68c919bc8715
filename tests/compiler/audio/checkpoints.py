"""A small random Whisper, made by `transformers`, and its transcripts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
import transformers
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

from tests.compiler.models.helpers.checkpoints import save_initialised

SECONDS, BINS = 2, 80
ROWS = 50 * SECONDS
WORDS = 100
SPECIAL = (
    "<|endoftext|>", "<|startoftranscript|>", "<|en|>", "<|de|>", "<|haw|>", "<|translate|>",
    "<|transcribe|>", "<|startoflm|>", "<|startofprev|>", "<|nospeech|>", "<|notimestamps|>",
    *(f"<|{row / 50:.2f}|>" for row in range(ROWS + 1)),
)  # fmt: skip
IDS = {text: WORDS + at for at, text in enumerate(SPECIAL)}
END, START = IDS["<|endoftext|>"], IDS["<|startoftranscript|>"]


def whisper(folder: Path, **fields: Any) -> torch.nn.Module:
    """A Whisper in `folder`, and transformers' model of it in float64."""
    config = transformers.WhisperConfig(
        vocab_size=WORDS + len(SPECIAL),
        num_mel_bins=BINS,
        d_model=32,
        encoder_layers=2,
        decoder_layers=3,
        encoder_attention_heads=2,
        decoder_attention_heads=4,
        encoder_ffn_dim=48,
        decoder_ffn_dim=64,
        max_source_positions=ROWS,
        max_target_positions=64,
        bos_token_id=END,
        eos_token_id=END,
        pad_token_id=END,
        decoder_start_token_id=START,
        begin_suppress_tokens=[3, END],
        **fields,
    )
    config._attn_implementation = "eager"
    torch.manual_seed(0)
    oracle = save_initialised(transformers.WhisperForConditionalGeneration(config), folder)
    words = {f"w{i}": i for i in range(WORDS)} | IDS
    tokenizer = Tokenizer(WordLevel(words, "w0"))
    tokenizer.add_special_tokens(list(SPECIAL))
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {
        "eos_token_id": END,
        "is_multilingual": True,
        "no_timestamps_token_id": IDS["<|notimestamps|>"],
        "suppress_tokens": [1, 2, *range(START, IDS["<|notimestamps|>"])],
        "begin_suppress_tokens": [3, END],
    }
    (folder / "generation_config.json").write_text(json.dumps(settings))
    return oracle
