"""What is left of a text's tokens where they are cut. No tokenizer, no engine."""

from __future__ import annotations

from array import array
from collections.abc import Sequence


def cut_text(ids: array[int], plain: Sequence[int], most: int) -> array[int]:
    """`most` tokens of `ids`, which are those of the text, `plain`, between tokens that the model
    wants before and behind: of the text the end goes. Where those are not found, what is behind
    `most` goes."""
    extra = len(ids) - len(plain)
    for before in range(max(extra, 0) + 1):
        if ids[before : before + len(plain)] == array("i", plain):
            behind = ids[before + len(plain) :]
            room = most - before - len(behind)
            if room < 0:
                break
            return ids[: before + room] + behind
    return ids[:most]


def cut_document(ids: array[int], room: int) -> array[int]:
    """Of a pair the second text is cut, at its end: a query without its end asks something else."""
    return ids[:room]
