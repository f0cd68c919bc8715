"""`ToolFormat`, the interface of a tool parser: parses tool calls in text and constrains them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from mlcc.api.parsers.tools.syntax.lark import Lark

Tools: TypeAlias = Mapping[str, Mapping[str, Any]]
"""JSON Schema of the arguments of each callable tool, by name."""


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call by the model."""

    name: str
    arguments: str
    """JSON text of an object."""
    id: str = ""
    """The model's own id of the call; "" = none."""


@dataclass(frozen=True, slots=True)
class Block:
    """Parsed text: calls, or text that is no call."""

    length: int
    """Length in characters."""
    calls: tuple[Call, ...] = ()
    """Empty = it is text for the user."""


class ToolFormat(Protocol):
    """A notation of tool calls."""

    @property
    def name(self) -> str:
        """Name for `--tool-parser`."""
        ...

    @property
    def opens(self) -> tuple[str, ...]:
        """Texts that a block may begin with."""
        ...

    @property
    def control(self) -> tuple[str, ...]:
        """Marks that may be control tokens in a vocabulary, and must be visible as text here."""
        ...

    @property
    def first(self) -> bool:
        """Whether blocks occur only at the start of an answer, one after another."""
        ...

    @property
    def json_arguments(self) -> bool:
        """Whether arguments are one object of JSON."""
        ...

    @property
    def trigger(self) -> str:
        """What the model writes before the first call: begins with one of `opens`."""
        ...

    @property
    def between(self) -> str:
        """What the model writes between two calls."""
        ...

    @property
    def after(self) -> str:
        """What the model writes after the last call."""
        ...

    def body(self, name: str, parameters: Mapping[str, Any], lark: Lark) -> str:
        """A Lark expression for one call, without these three."""
        ...

    def block(self, text: str, ended: bool, tools: Tools) -> Block | None:
        """Parse text that begins with one of `opens`; None = more text is needed.

        The result for a text holds for all its continuations, so that it does not depend on how an
        answer is cut. ended: no more text follows; then never None.
        """
        ...
