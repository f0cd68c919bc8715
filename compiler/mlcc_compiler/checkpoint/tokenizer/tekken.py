"""tokenizer.json of a checkpoint with Mistral's `tekken.json` (Voxtral): a byte-level vocabulary by
ranks, as tiktoken's, with the pattern of words and the control tokens in the file.

Control tokens come first: the token of rank 0 has the id behind them. Files without a list of
control tokens (of 2024) are refused: their checkpoints have a tokenizer.json.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mlcc.errors import CheckpointError, UnsupportedError
from mlcc_compiler.checkpoint.files import read_object
from mlcc_compiler.checkpoint.tokenizer.tiktoken import ranks_of, tree_of

NAME = "tekken.json"
_BEGIN = "<s>"
_MOST_SPECIAL = 1 << 16


def tokenizer_of(folder: Path) -> bytes | None:
    """tokenizer.json's bytes; None if the folder has no such file. Raises CheckpointError, or
    UnsupportedError for a file without control tokens."""
    found = read_object(folder, NAME)
    if found is None:
        return None
    if not found.get("special_tokens"):
        raise UnsupportedError(
            f"{folder / NAME}: names no control tokens, as files of 2024 do not; put the "
            "tokenizer.json of the checkpoint of Hugging Face beside it"
        )
    try:
        config = found["config"]
        count, size = config["default_num_special_tokens"], config["default_vocab_size"]
        special = _special(found["special_tokens"], count)
        rows = [(row["token_bytes"], row["rank"]) for row in found["vocab"][: size - count]]
        pattern = str(config["pattern"])
        ranks = ranks_of(folder / NAME, rows)
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise CheckpointError(
            f"{folder / NAME}: is no vocabulary of Mistral's ({type(error).__name__}: "
            f"{error!s:.80}); fetch it again"
        ) from error
    begin = next((token for token in special if token["content"] == _BEGIN), None)
    return tree_of(ranks, pattern, special, count, begin)


def _special(rows: list[dict[str, Any]], count: int) -> list[dict[str, Any]]:
    """All control tokens: those that are named, and fillers up to `count`. Raises ValueError."""
    names = {row["rank"]: row["token_str"] for row in rows}
    if not 0 < len(names) <= count <= _MOST_SPECIAL or not set(names) <= set(range(count)):
        raise ValueError(f"{len(rows)} control tokens of {count!r:.20}")
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return [
        {"id": i, "content": str(names.get(i, f"<SPECIAL_{i}>")), **flags, "special": True}
        for i in range(count)
    ]
