"""Stop strings: finds them in output text that arrives in pieces, anywhere (`StopChecker`) or in
the content of an answer alone (`ContentStopChecker`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias


class StopChecker:
    """Lets text through up to the first stop string and holds back what may be the start of one.

    The first match is the one that is complete first (among those, the longest), so the answer does
    not depend on how the text was cut into pieces. include: the text ends behind the stop string,
    not before it.
    """

    def __init__(self, stops: Sequence[str], include: bool = False) -> None:
        self.matched: str | None = None
        self._stops, self._include = tuple(stops), include
        self._held = ""

    @property
    def held(self) -> int:
        """Characters held back."""
        return len(self._held)

    def push(self, text: str) -> str:
        """Add text; returns what is certain to be part of the answer. "" after a match."""
        if not self._stops:
            return text
        if self.matched is not None or not text:
            return ""
        text = self._held + text
        found = [(at + len(s), at, s) for s in self._stops if (at := text.find(s)) >= 0]
        if found:
            end, start, self.matched = min(found)
            self._held = ""
            return text[: end if self._include else start]
        cut = len(text) - self._possible_start(text)
        self._held = text[cut:]
        return text[:cut]

    def flush(self, cut: bool = False) -> str:
        """The held text, once it is known that no more will come. cut: the token limit ended it."""
        held, self._held = self._held, ""
        return held

    def _possible_start(self, text: str) -> int:
        """Length of the longest end of `text` that is the start of a stop string."""
        longest = min(len(text), max(map(len, self._stops)) - 1)
        for length in range(longest, 0, -1):
            tail = text[-length:]
            if any(s.startswith(tail) for s in self._stops):
                return length
        return 0


@dataclass(frozen=True, slots=True)
class ParserSpec:
    """Which parser separates an answer's content from its reasoning and tool calls."""

    tools: str
    """Name of the tool parser."""
    reasoning: str = ""
    """Name of the reasoning parser; "" = none."""
    opened: bool = False
    """Whether the prompt begins the reasoning."""
    schemas: str = "{}"
    """The arguments of each callable tool: a JSON object of JSON Schemas."""


ContentSpan: TypeAlias = tuple[int, str]
"""Content of an answer: where it begins in the output, and its text."""


class ContentParser(Protocol):
    """Finds the content in the text of one output."""

    @property
    def decided(self) -> int:
        """Length of the output so far of which it is known what is content."""
        ...

    def push(self, text: str) -> Iterable[ContentSpan]:
        """Parse more text; returns the content that became known."""
        ...

    def flush(self, cut: bool) -> Iterable[ContentSpan]:
        """The remaining content, at the end of the text. cut: the token limit ended it."""
        ...


NewContentParser: TypeAlias = Callable[[ParserSpec], ContentParser]


class ContentStopChecker:
    """A `StopChecker` of an answer with markup: a stop string counts in its content, within one
    run of it. It holds back what the parser of the answer holds back, too."""

    def __init__(self, stops: Sequence[str], include: bool, parser: ContentParser) -> None:
        self._stops, self._include, self._parser = stops, include, parser
        self._checker = StopChecker(stops, include)
        """Checks the run of content that ends at `_run_end`."""
        self._run_end = 0
        self._out = 0
        """Characters that are out; `_held` follows them."""
        self._held = ""

    @property
    def matched(self) -> str | None:
        """The stop string that was found."""
        return self._checker.matched

    @property
    def held(self) -> int:
        """Characters held back."""
        return len(self._held)

    def push(self, text: str) -> str:
        """As `StopChecker.push`."""
        if self.matched is not None or not text:
            return ""
        self._held += text
        if (end := self._check(self._parser.push(text))) is not None:
            return self._take(end)
        decided = self._parser.decided
        # Text behind the run is no content: the next content begins another run.
        return self._take(decided - (self._checker.held if decided <= self._run_end else 0))

    def flush(self, cut: bool = False) -> str:
        """As `StopChecker.flush`."""
        end = self._check(self._parser.flush(cut))
        return self._take(self._out + len(self._held) if end is None else end)

    def _check(self, spans: Iterable[ContentSpan]) -> int | None:
        """Check more content. Returns where the output ends, if a stop string was found."""
        for start, text in spans:
            if start != self._run_end:
                self._checker = StopChecker(self._stops, self._include)
            begin = start - self._checker.held
            self._run_end = start + len(text)
            certain = self._checker.push(text)
            if self.matched is not None:
                return begin + len(certain)
        return None

    def _take(self, end: int) -> str:
        """The held text up to `end`; after a match the rest is dropped."""
        count = max(end - self._out, 0)
        text, self._held = self._held[:count], self._held[count:]
        self._out += len(text)
        if self.matched is not None:
            self._held = ""
        return text
