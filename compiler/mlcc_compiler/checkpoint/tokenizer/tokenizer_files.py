"""The tokenizer of a Hugging Face folder as tokenizer.json, the one format the runtime reads.

Kimi's and Mistral's are converted from their ranks (`tiktoken.py`, `tekken.py`). Other formats are
refused with the command to run: converting a SentencePiece model is left to transformers, and a
tokenizer that differs in one rule gives wrong answers without an error.
"""

from __future__ import annotations

import json
from pathlib import Path

from mlcc.errors import ArtifactError, CheckpointError, UnsupportedError
from mlcc.model.tokenizer.tokenizer import MAX_TOKENIZER_BYTES, FileTokenizer
from mlcc.util.files import FETCH_LFS, is_lfs_pointer
from mlcc.util.panics import muted
from mlcc_compiler.checkpoint.files import read
from mlcc_compiler.checkpoint.tokenizer import tekken, tiktoken
from mlcc_compiler.checkpoint.tokenizer.added_tokens import AddedTokens, add_tokens

NAME = "tokenizer.json"
MAX_VOCAB = 1 << 31
_OLD = ("tokenizer.model", "spiece.model", "sentencepiece.bpe.model", "vocab.json")


def read_tokenizer(
    folder: Path, added: AddedTokens, vocab_size: int | None
) -> tuple[bytes, list[str]]:
    """tokenizer.json's bytes with the tokens of the files beside it, and notes for the user.
    Raises CheckpointError, or UnsupportedError for old formats."""
    data = tokenizer_json(folder)
    try:
        return add_tokens(data, added, vocab_size or MAX_VOCAB)
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise _unsound(folder, error) from error


def tokenizer_json(folder: Path) -> bytes:
    """The file's bytes, valid JSON. Raises CheckpointError, or UnsupportedError for old formats."""
    data = read(folder, NAME, MAX_TOKENIZER_BYTES)
    for kind in (tiktoken, tekken):
        data = kind.tokenizer_of(folder) if data is None else data
    if data is None:
        raise _no_tokenizer(folder)
    try:
        token_ids(data)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise _unsound(folder, error) from error
    return data


def check_tokenizer(folder: Path, data: bytes) -> None:
    """Load tokenizer.json's bytes as the runtime will, and test them. Raises CheckpointError."""
    path = folder / NAME
    try:
        with muted():
            tokenizer = FileTokenizer(path, data)
            tokenizer.decode(tokenizer.encode("A b", add_special_tokens=True))
    except ArtifactError as error:
        reason = str(error).removeprefix(f"{path} cannot be read: ").rpartition("; ")[0]
        raise CheckpointError(f"{path}: cannot be loaded ({reason}); fetch it again") from error


def token_ids(data: bytes) -> dict[str, int]:
    """Id of every token of a tokenizer.json, added tokens over the model's vocabulary.

    Raises ValueError, LookupError, TypeError or AttributeError for invalid files.
    """
    tree = json.loads(data)
    vocab = tree["model"].get("vocab") or {}
    found = dict(vocab) if isinstance(vocab, dict) else {row[0]: i for i, row in enumerate(vocab)}
    found |= {token["content"]: token["id"] for token in tree.get("added_tokens") or []}
    for token, number in found.items():
        if type(number) is not int or not 0 <= number < 1 << 32:
            raise ValueError(f"the id of {token!r} is {number!r:.40}")
    return found


def _unsound(folder: Path, error: BaseException) -> CheckpointError:
    if is_lfs_pointer(folder / NAME):
        return CheckpointError(f"{folder / NAME}: {FETCH_LFS}")
    reason = f"{type(error).__name__}: {error}"
    return CheckpointError(f"{folder / NAME}: is no tokenizer.json ({reason}); fetch it again")


def _no_tokenizer(folder: Path) -> CheckpointError | UnsupportedError:
    old = next((name for name in _OLD if (folder / name).is_file()), None)
    if old is None:
        return CheckpointError(f"{folder}: has no {NAME}; fetch the checkpoint again")
    return UnsupportedError(
        f"{folder}: has only {old} and no {NAME}; convert it once: `pip install transformers "
        f'sentencepiece protobuf`, then `python -c "from transformers import AutoTokenizer as T; '
        f"T.from_pretrained('{folder}').save_pretrained('{folder}')\"`"
    )
