"""Reasoning parser: separates reasoning between two tags from the answer after it, as a stream.

A model's tags are a row of `REASONING_TAGS`, found in its chat template. gpt-oss answers in
channels, which `mlcc.api.parsers.tools.harmony` parses. `AnswerFrame` removes the tags that HunYuan
writes around the answer after its reasoning, `<answer>` and `</answer>`, each on a line of its own.
"""

from __future__ import annotations

from mlcc.api.parsers.deltas import ContentDelta, Delta, OutputParser, Place, ReasoningDelta
from mlcc.util.fast_dataclass import fast_dataclass


@fast_dataclass(frozen=True)
class ReasoningTags:
    """Tags around reasoning."""

    name: str
    """Name for `--reasoning-parser`."""
    open: str
    close: str
    answer: tuple[str, str] | None = None
    """Tags around the answer after the reasoning; None = there are none."""


HARMONY = "harmony"
REASONING_TAGS = (
    ReasoningTags(HARMONY, "<|channel|>analysis<|message|>", "<|end|>"),
    ReasoningTags("hunyuan", "<think>", "</think>", ("<answer>", "</answer>")),
    ReasoningTags("think", "<think>", "</think>"),
    ReasoningTags("mistral", "[THINK]", "[/THINK]"),
    ReasoningTags("seed", "<seed:think>", "</seed:think>"),
    ReasoningTags("thought", "<thought>", "</thought>"),
    ReasoningTags("cohere", "<|START_THINKING|>", "<|END_THINKING|>"),
    ReasoningTags("gemma", "<|channel>thought", "<channel|>"),
    ReasoningTags("granite", "Here is my thought process:", "Here is my response:"),
)


def reasoning_tags_of(template: str) -> ReasoningTags | None:
    """The tags that a chat template writes; None = it writes none."""
    return next((row for row in REASONING_TAGS if _writes(template, row)), None)


def _writes(template: str, tags: ReasoningTags) -> bool:
    if tags.answer and not all(mark in template for mark in tags.answer):
        return False
    # Phi's turns end in harmony's last mark, which proves nothing.
    return tags.open in template or (tags.name != HARMONY and tags.close in template)


class ReasoningParser:
    """Parses one answer. opened: the prompt ends in the opening tag. Text after the reasoning goes
    to `then`; None = it is content."""

    def __init__(self, tags: ReasoningTags, opened: bool, then: OutputParser | None) -> None:
        self._tags, self._then = tags, then
        self._place = "inside" if opened else "before"
        self._held = ""
        self._thought = False
        """Whether there was reasoning."""

    @property
    def held(self) -> int:
        """Characters at the end of the text that are in no part yet."""
        if self._place != "behind":
            return len(self._held)
        return 0 if self._then is None else self._then.held

    @property
    def place(self) -> Place:
        """Where the text so far ends."""
        if self._place != "inside":
            return "answer"
        return "mark" if self._begun() else "reasoning"

    def push(self, text: str) -> list[Delta]:
        """Parse more text."""
        if self._place == "behind":
            return self._pass(text)
        self._held += text
        return self._read(ended=False)

    def flush(self, cut: bool = False) -> list[Delta]:
        """The remaining parts, at the end of the text."""
        if cut:
            self._drop_mark()
        deltas = self._read(ended=True) if self._held else []
        return [*deltas, *(self._then.flush(cut) if self._then else [])]

    def _drop_mark(self) -> None:
        """Leave out a tag that is not complete."""
        if self._place == "inside":
            self._held = self._held[: len(self._held) - self._begun()]
        elif self._place == "before" and self._tags.open.startswith(self._held.lstrip()):
            self._held = ""

    def _read(self, ended: bool) -> list[Delta]:
        deltas: list[Delta] = []
        if self._place == "before" and not self._begin(ended):
            return []
        if self._place == "inside":
            deltas = self._inside(ended)
        if self._place == "trim":
            self._held = self._held.lstrip()
            if self._held:
                self._place = "behind"
        if self._place == "behind" and self._held:
            held, self._held = self._held, ""
            deltas += self._pass(held)
        return deltas

    def _begin(self, ended: bool) -> bool:
        """Whether it is known how the answer begins."""
        start = self._held.lstrip()
        if start.startswith(self._tags.open):
            self._held, self._place = start[len(self._tags.open) :], "inside"
        elif ended or not self._tags.open.startswith(start):
            self._place = "behind"
        return self._place != "before"

    def _inside(self, ended: bool) -> list[Delta]:
        at = self._held.find(self._tags.close)
        if at >= 0:
            text, self._held = self._held[:at], self._held[at + len(self._tags.close) :]
            self._place = "trim"
            return self._thoughts(text.rstrip())
        cut = len(self._held) if ended else len(self._held) - self._begun()
        text = self._held[:cut].rstrip()  # white space before the closing tag is not reasoning
        self._held = "" if ended else self._held[len(text) :]
        return self._thoughts(text)

    def _thoughts(self, text: str) -> list[Delta]:
        if not self._thought:
            text = text.lstrip()
        self._thought = self._thought or bool(text)
        return [ReasoningDelta(text)] if text else []

    def _begun(self) -> int:
        """Length of the longest suffix that may begin the closing tag."""
        close, held = self._tags.close, self._held
        lengths = range(min(len(close) - 1, len(held)), 0, -1)
        return next((n for n in lengths if close.startswith(held[-n:])), 0)

    def _pass(self, text: str) -> list[Delta]:
        if self._then is not None:
            return self._then.push(text)
        return [ContentDelta(text)] if text else []


class AnswerFrame:
    """Parses one answer after its reasoning: removes the opening tag at the start, and the closing
    tag at the end if the opening one was there. The text between goes to `then`; None = it is
    content."""

    def __init__(self, marks: tuple[str, str], then: OutputParser | None) -> None:
        self._open, self._close = marks
        self._then = then
        self._held = ""
        self._place = "before"

    @property
    def held(self) -> int:
        """Characters at the end of the text that are in no part yet."""
        return len(self._held) + (self._then.held if self._then else 0)

    @property
    def place(self) -> Place:
        """Where the text so far ends: never in reasoning."""
        return "answer"

    def push(self, text: str) -> list[Delta]:
        """Parse more text."""
        self._held += text
        return self._read(ended=False)

    def flush(self, cut: bool = False) -> list[Delta]:
        """The remaining parts, at the end of the text."""
        if cut and self._place == "before" and self._open.startswith(self._held.lstrip()):
            self._held = ""
        elif cut and self._place == "inside":
            self._held = self._held[: len(self._held.rstrip()) - self._begun()]
        deltas = self._read(ended=True)
        return [*deltas, *(self._then.flush(cut) if self._then else [])]

    def _read(self, ended: bool) -> list[Delta]:
        if self._place == "before":
            self._begin(ended)
        if self._place == "begun":
            self._held = self._held.lstrip("\n")
            self._place = "inside" if self._held else "begun"
        if self._place == "inside":
            return self._inside(ended)
        if self._place == "plain":
            return self._pass(len(self._held))
        return []

    def _begin(self, ended: bool) -> None:
        start = self._held.lstrip()
        if start.startswith(self._open):
            self._held, self._place = start[len(self._open) :], "begun"
        elif ended or not self._open.startswith(start):
            self._place = "plain"

    def _inside(self, ended: bool) -> list[Delta]:
        """All text but a suffix that may be the closing tag."""
        at = len(self._held.rstrip())
        bare = self._held[:at]
        if bare.endswith(self._close):
            at = len(bare[: -len(self._close)].rstrip("\n"))
            if not ended:
                return self._pass(at)
            deltas = self._pass(at)
            self._held = ""
            return deltas
        if ended:
            return self._pass(len(self._held))
        return self._pass(len(bare[: len(bare) - self._begun()].rstrip()))

    def _begun(self) -> int:
        """Length of the longest suffix, without white space, that may begin the closing tag."""
        bare = self._held.rstrip()
        lengths = range(min(len(self._close) - 1, len(bare)), 0, -1)
        return next((n for n in lengths if self._close.startswith(bare[-n:])), 0)

    def _pass(self, count: int) -> list[Delta]:
        text, self._held = self._held[:count], self._held[count:]
        if self._then is not None:
            return self._then.push(text) if text else []
        return [ContentDelta(text)] if text else []
