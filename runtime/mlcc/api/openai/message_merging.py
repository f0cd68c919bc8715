"""Merges messages of other protocols into the conversation that chat templates accept.

Templates want one system message, first, and alternating roles; many refuse anything else. Agents
send several system messages, some in the middle, and one turn in several messages. So consecutive
messages of one role are merged, and a later system message becomes a part of the user message at
that place, in the tags that Claude Code uses for it. A growing conversation keeps its beginning,
and with it its entries in the prefix cache.
"""

from __future__ import annotations

from typing import Any

OPENING, CLOSING = "<system-reminder>", "</system-reminder>"


class MessageMerger:
    """Builds the messages of /v1/chat/completions in order."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []

    def system(self, text: str) -> None:
        """A system message; after the first turn it becomes a part of the user's."""
        if not text:
            return
        if all(message["role"] == "system" for message in self.messages):
            self._say("system", text)
        else:
            self.user(f"{OPENING}\n{text}\n{CLOSING}")

    def user(self, text: str) -> None:
        """A user message."""
        self._say("user", text)

    def assistant(self, text: str) -> None:
        """Text of the model."""
        self._say("assistant", text)

    def reasoning(self, text: str) -> None:
        """Reasoning before the text or call that follows."""
        if text:
            turn = self._turn("assistant")
            turn["reasoning_content"] = joined(turn.get("reasoning_content", ""), text)

    def call(self, call_id: str, name: str, arguments: str) -> None:
        """A tool call by the model; arguments: JSON text."""
        calls = self._turn("assistant").setdefault("tool_calls", [])
        function = {"name": name, "arguments": arguments}
        calls.append({"id": call_id, "type": "function", "function": function})

    def result(self, call_id: str, text: str) -> None:
        """A tool's output."""
        self.messages.append({"role": "tool", "tool_call_id": call_id, "content": text})

    def _say(self, role: str, text: str) -> None:
        turn = self._turn(role)
        turn["content"] = joined(turn["content"] or "", text)

    def _turn(self, role: str) -> dict[str, Any]:
        """The last message if it has this role, or a new one."""
        if not self.messages or self.messages[-1]["role"] != role:
            self.messages.append({"role": role, "content": None})
        return self.messages[-1]


def joined(before: str, text: str, between: str = "\n\n") -> str:
    """Two texts as one, with `between` where no white space separates them."""
    apart = not before or not text or before.endswith("\n")
    return before + ("" if apart else between) + text


def joined_parts(parts: list[str]) -> str:
    """The text parts of one message, separated: agents send separate texts as parts."""
    text = ""
    for part in parts:
        text = joined(text, part, "\n")
    return text
