"""Reasoning that stands between two marks before the answer, apart from it; in pieces.

Which marks a model has is a row of `MARKS`, found in its chat template. gpt-oss' answers are all
channels, which are read by `mlcc.api.parsers.tools.harmony`.
"""

from __future__ import annotations

from mlcc.api.parsers.deltas import Content, Piece, Reader, Thought
from mlcc.util.fast_dataclass import fast_dataclass


@fast_dataclass(frozen=True)
class Marks:
    """Around reasoning."""

    name: str
    """As `--reasoning-parser` has it."""
    open: str
    close: str
    answer: tuple[str, str] | None = None
    """Round what is said behind it; None = nothing is."""


HARMONY = "harmony"
MARKS = (
    Marks(HARMONY, "<|channel|>analysis<|message|>", "<|end|>"),
    Marks("hunyuan", "<think>", "</think>", ("<answer>", "</answer>")),
    Marks("think", "<think>", "</think>"),
    Marks("mistral", "[THINK]", "[/THINK]"),
    Marks("seed", "<seed:think>", "</seed:think>"),
    Marks("thought", "<thought>", "</thought>"),
    Marks("cohere", "<|START_THINKING|>", "<|END_THINKING|>"),
    Marks("gemma", "<|channel>thought", "<channel|>"),
    Marks("granite", "Here is my thought process:", "Here is my response:"),
)


def marks_of(template: str) -> Marks | None:
    """Those that a chat template writes; None = it writes none."""
    return next((row for row in MARKS if _writes(template, row)), None)


def _writes(template: str, marks: Marks) -> bool:
    if marks.answer and not all(mark in template for mark in marks.answer):
        return False
    # Phi's turns end in harmony's last mark, so that it tells nothing.
    return marks.open in template or (marks.name != HARMONY and marks.close in template)


class ThoughtReader:
    """Of one answer. opened: its prompt ends in the first mark. Text behind the reasoning goes to
    `then`; None = it is content."""

    def __init__(self, marks: Marks, opened: bool, then: Reader | None) -> None:
        self._marks, self._then = marks, then
        self._place = "inside" if opened else "before"
        self._held = ""
        self._thought = False
        """Whether there was reasoning."""

    def push(self, text: str) -> list[Piece]:
        """More of the answer."""
        if self._place == "behind":
            return self._pass(text)
        self._held += text
        return self._read(ended=False)

    def flush(self) -> list[Piece]:
        """The rest, once no more will come."""
        pieces = self._read(ended=True) if self._held else []
        return [*pieces, *(self._then.flush() if self._then else [])]

    def _read(self, ended: bool) -> list[Piece]:
        pieces: list[Piece] = []
        if self._place == "before" and not self._begin(ended):
            return []
        if self._place == "inside":
            pieces = self._inside(ended)
        if self._place == "trim":
            self._held = self._held.lstrip()
            if self._held:
                self._place = "behind"
        if self._place == "behind" and self._held:
            held, self._held = self._held, ""
            pieces += self._pass(held)
        return pieces

    def _begin(self, ended: bool) -> bool:
        """Whether it is known how the answer begins."""
        start = self._held.lstrip()
        if start.startswith(self._marks.open):
            self._held, self._place = start[len(self._marks.open) :], "inside"
        elif ended or not self._marks.open.startswith(start):
            self._place = "behind"
        return self._place != "before"

    def _inside(self, ended: bool) -> list[Piece]:
        at = self._held.find(self._marks.close)
        if at >= 0:
            text, self._held = self._held[:at], self._held[at + len(self._marks.close) :]
            self._place = "trim"
            return self._thoughts(text.rstrip())
        cut = len(self._held) if ended else len(self._held) - self._begun()
        text = self._held[:cut].rstrip()  # the space before the last mark is no reasoning
        self._held = "" if ended else self._held[len(text) :]
        return self._thoughts(text)

    def _thoughts(self, text: str) -> list[Piece]:
        if not self._thought:
            text = text.lstrip()
        self._thought = self._thought or bool(text)
        return [Thought(text)] if text else []

    def _begun(self) -> int:
        """Length of the longest end that the last mark may begin with."""
        close, held = self._marks.close, self._held
        lengths = range(min(len(close) - 1, len(held)), 0, -1)
        return next((n for n in lengths if close.startswith(held[-n:])), 0)

    def _pass(self, text: str) -> list[Piece]:
        if self._then is not None:
            return self._then.push(text)
        return [Content(text)] if text else []
