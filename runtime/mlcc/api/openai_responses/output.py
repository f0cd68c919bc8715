"""The items of an answer's output, and the events that each makes while it grows.

Only one item is open at a time. `answer.py` numbers the events.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from mlcc.api.openai_responses.tools import ToolNames, custom_input
from mlcc.api.parsers.opaque_reasoning import packed
from mlcc.util.fast_dataclass import fast_dataclass

Event = dict[str, Any]


@fast_dataclass(frozen=True)
class ItemOptions:
    """The request's options for output items."""

    names: ToolNames
    summary: bool = False
    """Send reasoning as a summary."""
    encrypted: bool = False
    """Send reasoning as opaque text, too."""


class Output:
    """Collects `text`, `reasoning` and `call`, and ends with `close`."""

    def __init__(self, made_id: str, options: ItemOptions) -> None:
        self.items: list[dict[str, Any]] = []
        self._id = made_id
        self._options = options
        self._kind = ""
        """Type of the open item; "" = none."""
        self._call = -1
        """Index of the open call in the answer."""
        self._arguments = ""
        """Arguments so far of a custom tool's call."""
        self._spaces = ""
        """White space that is sent only if more text follows, as between reasoning and a call."""

    def text(self, text: str, logprobs: list[dict[str, Any]]) -> Iterator[Event]:
        """Append to a message."""
        if self._kind != "message":
            text = self._spaces + text
            self._spaces = "" if text.strip() else text
            if self._spaces:
                return
            yield from self._begin_message()
        part = self._last["content"][0]
        part["text"] += text
        part["logprobs"] += logprobs
        yield self._part("output_text.delta", delta=text, logprobs=logprobs)

    def reasoning(self, text: str) -> Iterator[Event]:
        """Append to the reasoning."""
        if self._kind != "reasoning":
            item = {"type": "reasoning", "id": self._new_id("rs"), "summary": [], "content": []}
            yield from self._begin("reasoning", item)
            kind = "summary_text" if self._options.summary else "reasoning_text"
            self._last[self._place].append({"type": kind, "text": ""})
            yield self._reasoning_part("added", {"type": kind, "text": ""})
        self._last[self._place][0]["text"] += text
        yield self._part(f"{self._reasoning_text}.delta", delta=text)

    def call(self, call: Mapping[str, Any]) -> Iterator[Event]:
        """Append to a call, from a chunk of a chat."""
        function = call.get("function") or {}
        if self._kind != "call" or call["index"] != self._call:
            yield from self._begin_call(call["id"], function["name"])
            self._call = call["index"]
        if not (more := function.get("arguments")):
            return
        if self._last["type"] == "custom_tool_call":
            self._arguments += more
            return
        self._last["arguments"] += more
        yield self._event("function_call_arguments.delta", delta=more)

    def close(self, status: str = "completed") -> Iterator[Event]:
        """End the open item."""
        if not self._kind:
            return
        kind, item = self._kind, self._last
        if kind == "message":
            part = item["content"][0]
            yield self._part("output_text.done", text=part["text"], logprobs=part["logprobs"])
            yield self._part("content_part.done", part=_copied(part))
        elif kind == "reasoning":
            part = item[self._place][0]
            yield self._part(f"{self._reasoning_text}.done", text=part["text"])
            yield self._reasoning_part("done", _copied(part))
            if self._options.encrypted:
                item["encrypted_content"] = packed(part["text"])
        elif item["type"] == "custom_tool_call":
            item["input"] = custom_input(self._arguments)
            yield self._event("custom_tool_call_input.delta", delta=item["input"])
            yield self._event("custom_tool_call_input.done", input=item["input"])
        else:
            fields = {"name": item["name"], "arguments": item["arguments"]}
            yield self._event("function_call_arguments.done", **fields)
        item["status"] = status
        self._kind = ""
        yield {"type": "response.output_item.done", "output_index": self._at, "item": _copied(item)}

    def close_all(self, status: str = "completed") -> Iterator[Event]:
        """End the open item at the end of an answer; an empty answer becomes an empty message."""
        if not self.items:
            yield from self._begin_message()
            if self._spaces:
                self._last["content"][0]["text"] = self._spaces
                yield self._part("output_text.delta", delta=self._spaces, logprobs=[])
        yield from self.close(status)

    def _begin_message(self) -> Iterator[Event]:
        item = {"type": "message", "id": self._new_id("msg"), "role": "assistant", "content": []}
        yield from self._begin("message", item)
        part = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
        self._last["content"].append(part)
        yield self._part("content_part.added", part=_copied(part))

    def _begin_call(self, call_id: str, flat: str) -> Iterator[Event]:
        origin = self._options.names.origin(flat)
        kind, given, mark = ("function_call", "arguments", "fc")
        if origin.custom:
            kind, given, mark = ("custom_tool_call", "input", "ctc")
        item = {"type": kind, "id": self._new_id(mark), "call_id": call_id, given: ""}
        item |= {"name": origin.name}
        if origin.namespace:
            item["namespace"] = origin.namespace
        self._arguments = ""
        yield from self._begin("call", item)

    def _begin(self, kind: str, item: dict[str, Any]) -> Iterator[Event]:
        yield from self.close()
        self.items.append({**item, "status": "in_progress"})
        self._kind = kind
        if kind != "message":
            self._spaces = ""
        added = {"output_index": self._at, "item": _copied(self._last)}
        yield {"type": "response.output_item.added", **added}

    @property
    def _place(self) -> str:
        return "summary" if self._options.summary else "content"

    @property
    def _reasoning_text(self) -> str:
        return "reasoning_summary_text" if self._options.summary else "reasoning_text"

    def _reasoning_part(self, what: str, part: dict[str, Any]) -> Event:
        name = "reasoning_summary_part" if self._options.summary else "content_part"
        return self._part(f"{name}.{what}", part=part)

    def _part(self, kind: str, /, **more: Any) -> Event:
        summary = self._kind == "reasoning" and self._options.summary
        return self._event(kind, **{"summary_index" if summary else "content_index": 0}, **more)

    def _event(self, kind: str, /, **more: Any) -> Event:
        where = {"item_id": self._last["id"], "output_index": self._at}
        return {"type": f"response.{kind}", **where, **more}

    def _new_id(self, mark: str) -> str:
        return f"{mark}_{self._id}_{len(self.items)}"

    @property
    def _last(self) -> dict[str, Any]:
        return self.items[-1]

    @property
    def _at(self) -> int:
        return len(self.items) - 1


def _copied(item: dict[str, Any]) -> dict[str, Any]:
    """A copy: an item grows after its event was made."""
    return {
        name: [dict(part) if isinstance(part, dict) else part for part in value]
        if isinstance(value, list)
        else value
        for name, value in item.items()
    }
