"""The turns of a conversation in the order that a chat template can render.

Templates were written for one system message, then user and assistant in turns. Of anything else
many refuse the conversation, and some drop a message without an error. Which do what is found out
by rendering short conversations (`TurnRules`), once per template and only for what a request has.
What a template cannot render is changed as little as possible:

- Messages of one role in a row become one message.
- A system message that the template cannot have there becomes a part of the conversation, as a
  user message in the tags that Claude Code uses for it. Text never gets more trust than it had.
- Where a template wants another role in between, an empty message of that role is added.
- Text beside tool calls that the template drops becomes a message of its own.
- A tool's result whose call is not there, as in a shortened conversation, gets a call without
  arguments.

A growing conversation keeps its beginning, and with it its entries in the prefix cache. Not the
shape of one message: that is `history.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from itertools import count
from typing import Any

from mlcc.errors import MlccError

Message = dict[str, Any]
Messages = Sequence[Mapping[str, Any]]
OPENING, CLOSING = "<system-reminder>", "</system-reminder>"
START, SYSTEM, USER, ANSWER, CALL, RESULT, END = "^SUACR$"
"""What may follow what: the roles, with an assistant's messages with calls apart, and both ends."""
_ROLES = {"system": SYSTEM, "user": USER, "assistant": ANSWER, "tool": RESULT}
_ALWAYS = frozenset({"^U", "SU", "UA", "AU", "UC", "CR", "RR", "RC", "RA", "U$", "R$", "A$"})
"""Every template renders these."""
_BEFORE = {START: "", SYSTEM: "S", USER: "U", ANSWER: "UA", CALL: "UC", RESULT: "UCR"}
_BEHIND = {SYSTEM: "SU", USER: "U", ANSWER: "AU", CALL: "CRAU", RESULT: "RAU", END: ""}
"""The conversations in which a pair is tried."""
_MORE = ("reasoning_content", "prefix")
"""What an assistant's message without content may have."""
_BESIDE, _EMPTY = "BE"
"""In a conversation that is tried: a call with text beside it, and an empty answer."""


class TurnRules:
    """What one template can render, with tools in the request or without. Thread-safe."""

    def __init__(self, render: Callable[[list[Message]], str]) -> None:
        self._render = render
        self._known: dict[str, bool] = {}

    def apply(self, messages: Messages) -> list[Message]:
        """The messages in an order that the template renders in full, as far as that is known."""
        if not all(message.get("role") in _ROLES for message in messages):
            return [*map(dict, messages)]
        answered = max((at for at, one in enumerate(messages) if _kind(one) == ANSWER), default=0)
        given = [
            part for at, one in enumerate(messages) for part in self._parts(one, at < answered)
        ]
        if any(_kind(message) == SYSTEM for message in given[1:]) and self._hoists:
            given.sort(key=lambda message: _kind(message) != SYSTEM)  # stable
        front = next((i for i, one in enumerate(given) if _kind(one) != SYSTEM), len(given))
        if all(_kind(message) != USER for message in given) and not self._can("A", "S", "SA"):
            given.insert(front, _empty(USER))
        last = next((_kind(one) for one in reversed(given) if _kind(one) != SYSTEM), USER)
        if front and not self._can("SU", SYSTEM + _BEFORE[last]):  # some have it in the last user's
            given[:front] = [{**message, "role": "user"} for message in given[:front]]
        made: list[Message] = []
        for message in given:
            self._add(made, message)
        if made and not self._follows(_kind(made[-1]), END):
            made.append(_empty(USER))
        return made

    def _parts(self, given: Mapping[str, Any], past: bool) -> list[Message]:
        """A message, or two if the template would drop the text beside its calls. past: whether an
        answer follows, before which some templates drop it."""
        message = dict(given)
        if _kind(message) == ANSWER and not any(map(message.get, ("content", *_MORE))):
            return [self._between(USER)]
        if _kind(message) != CALL or not message["content"]:
            return [message]
        if self._can("UBRAU" if past else "UBR"):
            return [message]
        return [{"role": "assistant", "content": message["content"]}, {**message, "content": ""}]

    def _add(self, made: list[Message], message: Message) -> None:
        """Append a message, or its text to the last one."""
        before, kind = _kind(made[-1]) if made else START, _kind(message)
        beside = kind == CALL and message["content"]
        if not self._follows(before, kind) or (beside and not self._follows(before, ANSWER)):
            if kind == RESULT:
                self._add(made, _call_of(message))
            if kind == SYSTEM and before != SYSTEM:
                return self._add(made, _reminder(message))
            if made and self._mergeable(before, kind):
                made[-1] = _merged(made[-1], message)
                return None
            if kind in (USER, ANSWER) or (kind == CALL and before != CALL):
                made.append(self._between(kind))
        made.append(message)
        return None

    def _between(self, kind: str) -> Message:
        """The message that goes before one of this kind: empty, if the template can have that."""
        if kind != USER:
            return _empty(USER)
        return _empty(ANSWER, "" if self._can("UEU") else "...")

    def _mergeable(self, before: str, kind: str) -> bool:
        if before == ANSWER and kind == CALL:
            return self._can("UBRAU", "UBR")
        return before == kind and kind in (SYSTEM, USER, ANSWER)

    def _follows(self, before: str, kind: str) -> bool:
        """Whether a message of one kind may follow one of another."""
        pair = before + kind
        if pair in _ALWAYS:
            return True
        first = SYSTEM if kind == SYSTEM and before not in (START, SYSTEM) else ""
        return self._can(first + _BEFORE[before] + _BEHIND[kind])

    def _can(self, *conversations: str) -> bool:
        """Whether the template renders these conversations in full."""
        if not self._openings:
            return True
        for kinds in conversations:
            if kinds not in self._known:
                self._known[kinds] = self._renders(kinds)
        return all(map(self._known.__getitem__, conversations))

    def _renders(self, kinds: str) -> bool:
        """Whether every text is there, in its order and behind the mark of its role. The first
        system message may stand anywhere: some have it in the last user's turn."""
        messages, texts = _conversation(kinds)
        prompt = self._whole(messages, texts)
        places = [prompt.find(text) for kind, text in texts[kinds[:1] == SYSTEM :]]
        return (
            bool(prompt)
            and places == sorted(places)
            and all(
                self._role_before(prompt[: prompt.index(text)]) in (kind, "")
                for kind, text in texts
                if kind in (USER, ANSWER)
            )
        )

    def _whole(self, messages: list[Message], texts: list[tuple[str, str]]) -> str:
        """The prompt, or "" if it does not have every text."""
        try:
            prompt = self._render(messages)
        except MlccError:
            return ""
        return prompt if all(text in prompt for _, text in texts) else ""

    @cached_property
    def _hoists(self) -> bool:
        """Whether the template itself writes all system messages in front."""
        return not self._can("SUSU") and bool(self._whole(*_conversation("SUSU")))

    def _role_before(self, text: str) -> str:
        """The role whose marks a text ends with; "" = unknown."""
        alike = {kind: max(_alike(text, one) for one in those)
                 for kind, those in self._openings.items()}  # fmt: skip
        best = max(alike.values(), default=0)
        found = [kind for kind, length in alike.items() if length == best]
        return found[0] if len(found) == 1 else ""

    @cached_property
    def _openings(self) -> dict[str, list[str]]:
        """What the template writes before texts of users and assistants; {} = it fails on the
        plainest conversation, and nothing can be found out."""
        found: dict[str, list[str]] = {}
        for kinds in ("UAUAU", "SUA"):
            messages, texts = _conversation(kinds)
            if not (rest := self._whole(messages, texts)):
                break
            for kind, text in sorted(texts, key=lambda one: rest.index(one[1])):
                before, _, rest = rest.partition(text)
                if kind != SYSTEM:
                    found.setdefault(kind, []).append(before)
        return found


def _conversation(kinds: str) -> tuple[list[Message], list[tuple[str, str]]]:
    """A conversation of these kinds, and its texts with their kinds."""
    numbers = count()
    messages, texts = [], []
    for kind in kinds:
        if kind == _EMPTY:
            messages.append(_empty(ANSWER))
            continue
        text = f"zq{next(numbers)} words"
        call = {"id": "zqcall123", "type": "function"}
        call["function"] = {"name": "zq_name", "arguments": {"zq_key": text}}  # type: ignore[assignment]
        if kind in (CALL, _BESIDE):
            message = {"role": "assistant", "content": "", "tool_calls": [call]}
        elif kind == RESULT:
            message = {"role": "tool", "tool_call_id": "zqcall123", "name": "zq_name"}
        else:
            message = {"role": next(role for role, known in _ROLES.items() if known == kind)}
        if kind == _BESIDE:
            message["content"] = beside = f"zq{next(numbers)} words"
            texts.append((ANSWER, beside))
        elif kind != CALL:
            message["content"] = text
        messages.append(message)
        texts.append((kind, text))
    return messages, texts


def _kind(message: Mapping[str, Any]) -> str:
    return CALL if message.get("tool_calls") else _ROLES[message["role"]]


def _empty(kind: str, content: str = "") -> Message:
    return {"role": "user" if kind == USER else "assistant", "content": content}


def _call_of(result: Message) -> Message:
    """The call that a result needs in front."""
    function = {"name": result.get("name", "unknown"), "arguments": dict[str, Any]()}
    call = {"id": result.get("tool_call_id", ""), "type": "function", "function": function}
    return {"role": "assistant", "content": "", "tool_calls": [call]}


def _reminder(message: Message) -> Message:
    return {"role": "user", "content": f"{OPENING}\n{message['content']}\n{CLOSING}"}


def _merged(before: Message, message: Message) -> Message:
    made = {**before, **message, "content": joined(before["content"], message["content"])}
    if thought := before.get("reasoning_content"):
        made["reasoning_content"] = joined(thought, message.get("reasoning_content", ""))
    return made


def joined(before: str, text: str, between: str = "\n\n") -> str:
    """Two texts as one, with `between` where no white space separates them."""
    apart = not before or not text or before.endswith("\n")
    return before + ("" if apart else between) + text


def _alike(text: str, other: str) -> int:
    """The length of the end that two texts share."""
    pairs = enumerate(zip(reversed(text), reversed(other), strict=False))
    return next((n for n, (a, b) in pairs if a != b), min(len(text), len(other)))
