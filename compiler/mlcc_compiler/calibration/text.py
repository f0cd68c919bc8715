"""Calibration rows: the tokens of a text, or random tokens.

The default text has a few domains: articles, prose, verse, news, letters, dialogue, code, tables,
mathematics, JSON, and a dozen languages. It comes from works whose copyright has expired and from
this project. Long texts are sampled evenly; special tokens that the tokenizer puts before a text
begin every row. Random tokens lack a text's correlations, but show how large each input of a matrix
is: a model's large channels hardly depend on its input.
"""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import numpy as np

from mlcc.errors import UnsupportedError
from mlcc.model.tokenizer.tokenizer import FileTokenizer, beginning
from mlcc.util.files import read_regular

DEFAULT = "default"
RANDOM_ROWS, RANDOM_TOKENS = 2, 64
ROW_TOKENS = 512
MAX_ROWS = 32
MIN_TOKENS = 64
MAX_BYTES = 64 << 20


def calibration_text(source: str) -> str:
    """The text of a file, or `default`. Raises UnsupportedError for a file that is not a text."""
    if source == DEFAULT:
        return (files("mlcc_compiler.calibration") / "default.txt").read_text(encoding="utf-8")
    try:
        return read_regular(Path(source), MAX_BYTES).decode()
    except (OSError, ValueError) as error:
        raise UnsupportedError(
            f"--calibrate {source}: cannot be read as UTF-8 text ({error}); give a text file, or "
            f"'{DEFAULT}'"
        ) from error


def text_rows(text: str, tokenizer: FileTokenizer, longest: int) -> list[list[int]]:
    """At most MAX_ROWS rows of at most `longest` and ROW_TOKENS tokens.

    Raises UnsupportedError for a text that is too short.
    """
    begin = beginning(tokenizer)
    length = min(ROW_TOKENS, longest) - len(begin)
    ids = list(tokenizer.encode(text, add_special_tokens=False))
    if len(ids) < MIN_TOKENS:
        raise UnsupportedError(
            f"--calibrate: the text has {len(ids)} tokens; give one of some thousands, or "
            f"'{DEFAULT}'"
        )
    count = min(MAX_ROWS, -(-len(ids) // length))
    stride = max(length, len(ids) // count)
    rows = (ids[start : start + length] for start in range(0, count * stride, stride))
    return [begin + row for row in rows if row]


def random_rows(vocab_size: int, tokenizer: FileTokenizer, longest: int) -> list[list[int]]:
    """A few short rows of random tokens (fixed seed), with the tokenizer's first special tokens."""
    begin = beginning(tokenizer)
    length = min(RANDOM_TOKENS, longest) - len(begin)
    ids = np.random.default_rng(0).integers(0, vocab_size, (RANDOM_ROWS, length))
    return [begin + row for row in ids.tolist()]
