"""A host's tokenizer: Hugging Face's, behind the callbacks of mlcc.h."""

from __future__ import annotations

import json
from array import array
from pathlib import Path

from mlcc.model.tokenizer.tokenizer import FileTokenizer
from tests.helpers.mobile.c_host import Tokenizer


def answering(model: Path) -> Tokenizer:
    """The tokenizer of a compiled model."""
    tokenizer = FileTokenizer(model / "tokenizer.json")

    def answer(what: int, special: int, data: bytes) -> tuple[int, bytes]:
        if what == 0:
            return 0, tokenizer.encode(data.decode(), add_special_tokens=bool(special)).tobytes()
        if what == 1:
            return 0, tokenizer.decode(array("i", data)).encode()
        return 0, json.dumps(tokenizer.special_tokens()).encode()

    return answer
