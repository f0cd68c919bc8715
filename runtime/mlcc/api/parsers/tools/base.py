"""`ToolFormat`, the interface of a tool parser: parses tool calls in text and constrains them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from mlcc.api.parsers.tools.syntax.lark import Lark

Tools: TypeAlias = Mapping[str, Mapping[str, Any]]
"""The schema of the arguments of each tool that may be called, by its name."""


@dataclass(frozen=True, slots=True)
class Call:
    """A tool that the model calls."""

    name: str
    arguments: str
    """JSON's text, of an object."""
    id: str = ""
    """As the model itself calls it; "" = it does not."""


@dataclass(frozen=True, slots=True)
class Block:
    """Text that has been read: calls, or what turned out to be none."""

    length: int
    """Its characters."""
    calls: tuple[Call, ...] = ()
    """None = it is text for the user."""


class ToolFormat(Protocol):
    """A way to write calls."""

    @property
    def name(self) -> str:
        """As `--tool-parser` has it."""
        ...

    @property
    def opens(self) -> tuple[str, ...]:
        """What a block begins with."""
        ...

    @property
    def control(self) -> tuple[str, ...]:
        """What may be control tokens in a vocabulary, and must be seen as text here."""
        ...

    @property
    def first(self) -> bool:
        """Whether blocks are found at the start of an answer only, and behind each other."""
        ...

    @property
    def trigger(self) -> str:
        """What the model was trained to write before the first call: begins with one of `opens`."""
        ...

    @property
    def between(self) -> str:
        """What it writes from one call to the next."""
        ...

    @property
    def after(self) -> str:
        """What it writes behind the last call."""
        ...

    def body(self, name: str, parameters: Mapping[str, Any], lark: Lark) -> str:
        """A grammar's expression of one call, without these three."""
        ...

    def block(self, text: str, ended: bool, tools: Tools) -> Block | None:
        """Read what begins with one of `opens`; None = more is needed to know.

        What is said of a text is said of all that begin with it, so that it does not matter how an
        answer is cut. ended: no more will come; then never None.
        """
        ...
