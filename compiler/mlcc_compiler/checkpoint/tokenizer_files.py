"""The tokenizer of a Hugging Face folder as tokenizer.json, the one format the runtime reads.

Other formats are refused with what to type: converting a SentencePiece model is transformers'
business, and a tokenizer that differs in one rule answers wrongly without an error.
"""

from __future__ import annotations

import json
from pathlib import Path

from mlcc.errors import CheckpointError, UnsupportedError

NAME = "tokenizer.json"
MAX_BYTES = 256 << 20
_OLD = ("tokenizer.model", "spiece.model", "sentencepiece.bpe.model", "vocab.json", "tekken.json")


def tokenizer_json(folder: Path) -> bytes:
    """The file's bytes, known to be JSON. CheckpointError, or UnsupportedError for old formats."""
    path = folder / NAME
    if not path.is_file():
        raise _no_tokenizer(folder)
    try:
        if path.stat().st_size > MAX_BYTES:
            raise ValueError(f"it is larger than {MAX_BYTES >> 20} MiB")
        data = path.read_bytes()
        token_ids(data)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise CheckpointError(f"{path}: is no tokenizer.json ({error}); fetch it again") from error
    return data


def token_ids(data: bytes) -> dict[str, int]:
    """Id of every token of a tokenizer.json, added tokens over the model's vocabulary."""
    tree = json.loads(data)
    vocab = tree["model"].get("vocab") or {}
    found = dict(vocab) if isinstance(vocab, dict) else {row[0]: i for i, row in enumerate(vocab)}
    return found | {token["content"]: token["id"] for token in tree.get("added_tokens") or []}


def _no_tokenizer(folder: Path) -> CheckpointError | UnsupportedError:
    old = next((name for name in _OLD if (folder / name).is_file()), None)
    if old is None:
        return CheckpointError(f"{folder}: has no {NAME}; fetch the checkpoint again")
    return UnsupportedError(
        f"{folder}: has only {old} and no {NAME}; convert it once: `pip install transformers "
        f'sentencepiece protobuf`, then `python -c "from transformers import AutoTokenizer as T; '
        f"T.from_pretrained('{folder}').save_pretrained('{folder}')\"`"
    )
