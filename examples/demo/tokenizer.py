"""Trains the byte-level BPE tokenizer and writes it with the ChatML template, as HF files.

Digits are single tokens so that arithmetic sees every place; all 256 bytes are in the vocabulary so
that any UTF-8 text can be encoded. `render` is the template as a plain function; `write` checks
that both give the same text. Called by train.py.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from data import Message, training_conversations
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

VOCABULARY = 1280
END_OF_TEXT, BEGIN, START, END = "<|endoftext|>", "<|bos|>", "<|im_start|>", "<|im_end|>"
SPECIAL = (END_OF_TEXT, BEGIN, START, END)
SPLIT = r" ?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+|\s+"

TEMPLATE = (
    "{{ bos_token }}"
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


def render(messages: list[Message]) -> str:
    """The whole conversation as the model sees it, without a generation prompt."""
    turns = (f"{START}{m['role']}\n{m['content']}{END}\n" for m in messages)
    return BEGIN + "".join(turns)


def _corpus(chats: int) -> Iterator[str]:
    for messages in islice(training_conversations(seed=3), chats):
        yield from (message["content"] for message in messages)
        yield from ("system\n", "user\n", "assistant\n")


def train(chats: int = 30_000) -> Tokenizer:
    """A BPE tokenizer for the demo's own kind of text."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(SPLIT), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=[AddedToken(text, special=True) for text in SPECIAL],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_corpus(chats), trainer)
    return tokenizer


def settings(context: int = 2048) -> dict[str, object]:
    """tokenizer_config.json."""
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": BEGIN,
        "eos_token": END,
        "pad_token": END_OF_TEXT,
        "additional_special_tokens": [START],
        "model_max_length": context,
        "clean_up_tokenization_spaces": False,
        "chat_template": TEMPLATE,
    }


def _check(folder: Path) -> None:
    from transformers import AutoTokenizer

    messages = next(training_conversations(seed=4))
    loaded = AutoTokenizer.from_pretrained(folder)
    assert loaded.apply_chat_template(messages, tokenize=False) == render(messages)
    assert len(loaded) == VOCABULARY
    text = "Zoë, 日本 😀\n\t  x"
    assert loaded.decode(loaded.encode(text, add_special_tokens=False)) == text


def write(folder: Path) -> None:
    """Train the tokenizer and write its two files."""
    folder.mkdir(parents=True, exist_ok=True)
    train().save(str(folder / "tokenizer.json"))
    config = json.dumps(settings(), indent=2, ensure_ascii=False)
    (folder / "tokenizer_config.json").write_text(config + "\n", encoding="utf-8")
    _check(folder)
