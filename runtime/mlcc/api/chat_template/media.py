"""Images and sounds of a conversation on their way through a chat template.

A template that knows images gets a message's content as parts, `{"type": "image"}` among them,
and writes its mark for each; of sounds likewise `{"type": "audio"}`. Any other gets the mark within
the text. The marks are then replaced by the texts of the images and sounds. A mark that a message
itself has is plain text: the template's guard (`control_tokens.py`) tells them apart.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mlcc.api.chat_template.control_tokens import TemplateText
from mlcc.errors import InvalidRequestError
from mlcc.multimodal.audio.encoded import is_sound
from mlcc.multimodal.placeholders import PromptMedia
from mlcc.util.fast_dataclass import fast_dataclass

Message = dict[str, Any]
IMAGE, AUDIO = {"type": "image"}, {"type": "audio"}
NOTE, AUDIO_NOTE = (f"[the {what} is in the next message]" for what in ("image", "audio"))
"""In a tool's result whose image or sound its template cannot have there."""


@fast_dataclass(frozen=True)
class MediaTexts:
    """What stands for each image and sound in the rendered prompt, by number."""

    media: PromptMedia
    texts: Sequence[str]

    def numbers(self, messages: Sequence[Mapping[str, Any]]) -> list[int]:
        """The images and sounds in the order of the messages."""
        contents = [message.get("content") for message in messages]
        parts = [self.media.split(text) for text in contents if isinstance(text, str)]
        return [part for each in parts for part in each if isinstance(part, int)]

    def as_parts(self, message: Message) -> Message:
        """The message with its content as parts, if it has images."""
        parts = self._parts(message)
        if len(parts) == 1:
            return message
        content = [
            (AUDIO if self.is_sound(part) else IMAGE) if isinstance(part, int) else _text(part)
            for part in parts
            if part != ""
        ]
        return {**message, "content": content}

    def is_sound(self, number: int) -> bool:
        """Whether this one is a sound."""
        return is_sound(self.media.items[number])

    def as_text(
        self, message: Message, marks: tuple[str, str], guarded: Callable[[str], str]
    ) -> Message:
        """The message with the mark of each of its images and sounds in its text, the rest guarded.
        marks: of an image, and of a sound."""
        parts = self._parts(message)
        if len(parts) == 1:
            return message
        texts = [
            marks[self.is_sound(part)] if isinstance(part, int) else guarded(part) for part in parts
        ]
        return {**message, "content": TemplateText("".join(texts))}

    def after_tools(self, messages: Sequence[Mapping[str, Any]]) -> list[Message]:
        """The messages with the images of tools' results in the user's message that follows, for
        templates that cannot have them in a result."""
        made: list[Message] = []
        moved: list[str] = []
        for message in messages:
            if moved and message.get("role") != "tool":
                _say(made, message, "".join(moved))
                moved = []
                if message.get("role") == "user":
                    continue
            parts = self._parts(message) if message.get("role") == "tool" else [""]
            if len(parts) == 1:
                made.append(dict(message))
                continue
            texts = [
                (AUDIO_NOTE if self.is_sound(part) else NOTE) if isinstance(part, int) else part
                for part in parts
            ]
            moved += self._placeholders(str(message["content"]))
            made.append({**message, "content": "\n".join(filter(None, texts))})
        if moved:
            made.append({"role": "user", "content": "".join(moved)})
        return made

    def place(self, text: str, marks: tuple[str, str], numbers: Sequence[int]) -> str:
        """The rendered text with each mark replaced by the text of its image or sound; marks: of an
        image, and of a sound, "" = the model has none. Raises InvalidRequestError if the template
        wrote other than one mark for each."""
        known = "|".join(re.escape(mark) for mark in marks if mark)
        between = re.split(f"({known})", text)
        found, wanted = between[1::2], [marks[self.is_sound(number)] for number in numbers]
        if found != wanted:
            what = "images" if not self.media.sounds else "sounds"
            raise InvalidRequestError(
                f"the model's chat template writes {len(found)} of {len(numbers)} {what}; "
                f"put {what} into messages of the role 'user', or give the model a template that "
                "has them (chat_template.jinja)",
                param="messages",
                code="image_count",
            )
        pairs = zip(numbers, between[2::2], strict=True)
        return between[0] + "".join(self.texts[number] + rest for number, rest in pairs)

    def _parts(self, message: Mapping[str, Any]) -> list[str | int]:
        content = message.get("content")
        return self.media.split(content) if isinstance(content, str) else [""]

    def _placeholders(self, content: str) -> list[str]:
        return [self.media.stand_in(p) for p in self.media.split(content) if isinstance(p, int)]


def _say(made: list[Message], message: Mapping[str, Any], media: str) -> None:
    """Append a user's message of images, together with the user's own that follows."""
    if message.get("role") == "user" and isinstance(message.get("content"), str):
        made.append({**message, "content": media + message["content"]})
    else:
        made.append({"role": "user", "content": media})
        if message.get("role") == "user":
            made.append(dict(message))


def _text(text: str | int) -> dict[str, Any]:
    return {"type": "text", "text": text}
