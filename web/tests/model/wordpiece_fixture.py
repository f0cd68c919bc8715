"""Writes wordpiece_fixture.json: the tokens of difficult texts by Python's `tokenizers`, with the
parts of BERT's tokenizers and RoBERTa's post-processor. Run by hand in the project's environment.

The vocabulary is every second character of the texts, at the start of words and within, and some
words: a text that is normalized or split differently gets other ids, and much of it is unknown.
"""

from __future__ import annotations

import json
import random
import unicodedata
from pathlib import Path
from typing import Any

from tokenizer_fixture import TEXTS
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

OUT = Path(__file__).with_suffix(".json")
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = ["the", "hello", "world", "##ing", "##ed", "play", "##2", "un", "##aff", "##able", "σ",
         "##σ", "ς", "##ς", "i", "##̇", "don", "'", "t", "do", "not", "n"]  # fmt: skip
BERT = [
    "Playing UNAFFABLE played", "ΟΔΥΣΣΕΥΣ ΣΟΦΟΣ Σ aΣ", "İstanbul İ I ı", "ÀÉÎõü Ångström ǅ ß ẞ",
    "a\x00b\x07c\x7fd\x0be\x0cf\x85g",
    "\u180e\u200b\u2060\u061c\u08e2\u0890|", "中文字漢\U00020000\U0002b81eカ",
    
    "[CLS] a [SEP] b[MASK]c [mask]", "\u061d?\u2e52\u2e43!\u166d\U000111c9$+<=>^`|~",
    "x" * 101, "x" * 100,
    "don't do not , I 'm . ' s n't", "e\u0301\u0327\u1ab0\u1dfb",
    "\ue000\ufffd\U000f0000\ufeff", "#Ing ##ing",
]  # fmt: skip


def vocabulary() -> dict[str, int]:
    texts = "".join([*TEXTS, *BERT])
    cased = (texts, texts.lower())
    forms = {c for form in cased for c in unicodedata.normalize("NFD", form) + form}
    letters = sorted(c for c in forms if not c.isspace() and ord(c) > 0x20)[::2]
    pieces = [*SPECIAL, *WORDS, *letters, *(f"##{letter}" for letter in letters)]
    return {piece: i for i, piece in enumerate(dict.fromkeys(pieces))}


def made(normalizer: dict[str, Any], cleanup: bool, roberta: bool) -> Tokenizer:
    vocab = vocabulary()
    tokenizer = Tokenizer(models.WordPiece(vocab, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(**normalizer)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    frame = processors.RobertaProcessing if roberta else processors.BertProcessing
    tokenizer.post_processor = frame(("[SEP]", vocab["[SEP]"]), ("[CLS]", vocab["[CLS]"]))
    tokenizer.decoder = decoders.WordPiece(cleanup=cleanup)
    tokenizer.add_special_tokens(SPECIAL)
    return tokenizer


KINDS = {
    "uncased": made({"lowercase": True}, True, False),
    "cased": made({"lowercase": False}, True, False),
    "lower, with accents": made({"lowercase": True, "strip_accents": False}, False, True),
    "as it is": made({"lowercase": False, "clean_text": False, "handle_chinese_chars": False,
                      "strip_accents": True}, False, False),
}  # fmt: skip


def loose(size: int) -> list[list[int]]:
    dice = random.Random(3)
    return [[dice.randrange(size + 3) for _ in range(12)] for _ in range(12)]


def main() -> None:
    texts = [*TEXTS, *BERT]
    plain = {name: json.loads(kind.to_str()) for name, kind in KINDS.items()}
    model = next(iter(plain.values()))["model"]
    fixture = {
        "texts": texts,
        "model": model,
        "kinds": {
            name: {
                "tokenizer": {**plain[name], "model": None},
                "start": kind.encode("Hi").ids,
                "ids": [kind.encode(text, add_special_tokens=False).ids for text in texts],
                "loose": [[ids, kind.decode(ids)] for ids in loose(len(model["vocab"]))],
            }
            for name, kind in KINDS.items()
        },
    }
    OUT.write_text(json.dumps(fixture, ensure_ascii=True, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
