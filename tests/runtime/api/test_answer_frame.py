"""HunYuan's control tokens around an answer, however the answer is cut into pieces."""

from __future__ import annotations

import pytest

from mlcc.api.parsers.deltas import ContentDelta
from mlcc.api.parsers.reasoning import AnswerFrame

MARKS = ("<answer>", "</answer>")


def read(text: str, size: int) -> str:
    frame = AnswerFrame(MARKS, None)
    pieces = [piece for at in range(0, len(text), size) for piece in frame.push(text[at:][:size])]
    pieces += frame.flush()
    return "".join(piece.text for piece in pieces if isinstance(piece, ContentDelta))


@pytest.mark.parametrize("size", [1, 2, 3, 5, 100])
@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("<answer>\nIt is 21.\n</answer>", "It is 21."),
        ("\n<answer>\nIt is\n\n21.\n</answer>\n", "It is\n\n21."),
        ("It is 21.", "It is 21."),
        ("It is </answer> 21.", "It is </answer> 21."),
        ("<answer>a </answer> b </answer>", "a </answer> b "),
        ("<answer>cut at the most tok", "cut at the most tok"),
        ("<answer>a < b </", "a < b </"),
        ("<ans", "<ans"),
        ("<answer>\n</answer>", ""),
        ("", ""),
    ],
)
def test_what_is_between_the_marks_is_the_answer(text: str, wanted: str, size: int) -> None:
    assert read(text, size) == wanted
