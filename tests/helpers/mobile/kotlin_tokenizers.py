"""Token ids of Python's tokenizers, with which those of Kotlin are compared."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path
from typing import Any

from tokenizers import (
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

from mlcc.model.tokenizer.tokenizer import FileTokenizer

SCRIPTS = {
    "Latin": "Zwölf Boxkämpfer jagen Eva quer über den Sylter Deich; naïve café.",
    "Greek": "Ξεσκεπάζω την ψυχοφθόρα βδελυγμία.",
    "Cyrillic": "Съешь же ещё этих мягких французских булок.",
    "Hebrew": "דג סקרן שט בים מאוכזב ולפתע מצא חברה.",
    "Arabic": "نص حكيم له سر قاطع وذو شأن عظيم.",
    "Devanagari": "ऋषियों को सताने वाले दुष्ट राक्षसों के राजा।",
    "Thai": "เป็นมนุษย์สุดประเสริฐเลิศคุณค่า",
    "Han": "視野無限廣，窗外有藍天。天地玄黃",
    "Kana": "いろはにほへと ちりぬるを ア゛ガ",
    "Hangul": "키스의 고유조건은 입술끼리 만나야 하고",
}
OTHERS = (
    "",
    " ",
    "a",
    "  two  spaces\n\n\ttab\r\n",
    "1234567.89",
    "🦊👨‍👩‍👧‍👦🇩🇪",
    "e\u0301 \u00e9 ﬁ ①",
    "\u0000",
)
AROUND = ("<s>", "</s>", "<|tool|>")


def cases(folders: list[Path]) -> list[dict[str, Any]]:
    """For each folder with a tokenizer.json: its special tokens, texts with ids, ids with texts."""
    return [of_one(folder) for folder in folders]


def of_one(folder: Path) -> dict[str, Any]:
    tokenizer = FileTokenizer(folder / "tokenizer.json")
    special = tokenizer.special_tokens()
    texts = [*SCRIPTS.values(), *OTHERS, *special, *(f"a{token} b{token}c" for token in special)]
    encoded = [
        {
            "text": text,
            "special": added,
            "ids": list(tokenizer.encode(text, add_special_tokens=added)),
        }
        for text, added in product(texts, (False, True))
    ]
    lists = [case["ids"][:end] for case in encoded for end in (None, -1, 1)]
    decoded = [{"ids": ids, "text": tokenizer.decode(ids)} for ids in lists]
    return {
        "folder": str(folder), "special": special, "encoded": encoded, "decoded": decoded,
    }  # fmt: skip


def train(folder: Path) -> None:
    """A tokenizer unlike the demo's: it normalizes, knows all scripts, adds tokens around."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=600,
        special_tokens=list(AROUND),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(SCRIPTS.values(), trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 1)]
    )
    tokenizer.enable_truncation(16)  # which is not obeyed: a prompt is never cut in silence
    folder.mkdir(exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))


def write(path: Path, folders: list[Path]) -> None:
    """The file that the Kotlin test reads."""
    path.write_text(json.dumps(cases(folders)), encoding="utf-8")
