"""Images and sounds of a request while its messages are still text.

Messages are merged, ordered and adapted to a chat template as text. In the content of a message an
image or a sound is a placeholder: a short text with a number and a random secret, which no client
can write. The chat template's rendering exchanges it (`mlcc.api.chat_template.media`). Standard
library only.
"""

from __future__ import annotations

import os
import re
from functools import cached_property

from mlcc.multimodal.audio.encoded import EncodedAudio, check_sounds
from mlcc.multimodal.header import EncodedImage, read_headers
from mlcc.util.fast_dataclass import fast_dataclass

_OPEN, _CLOSE = "\ue0b9", "\ue0ba"


@fast_dataclass(frozen=True)
class PromptMedia:
    """The images and sounds of one request, by number, and the secret of their placeholders."""

    secret: str
    items: tuple[EncodedImage | EncodedAudio, ...]

    @property
    def images(self) -> list[EncodedImage]:
        """The images alone."""
        return [each for each in self.items if isinstance(each, EncodedImage)]

    @property
    def sounds(self) -> list[EncodedAudio]:
        """The sounds alone."""
        return [each for each in self.items if isinstance(each, EncodedAudio)]

    def split(self, text: str) -> list[str | int]:
        """The text at its placeholders: texts, perhaps empty, and between them numbers."""
        parts = self._pattern.split(text)
        return [int(part) if at % 2 else part for at, part in enumerate(parts)]

    def stand_in(self, number: int) -> str:
        """The placeholder of one of them."""
        return _stand_in(self.secret, number)

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        return re.compile(f"{_OPEN}{self.secret}:([0-9]+){_CLOSE}")


class TextWithMedia(str):
    """A raw prompt with placeholders, and its images and sounds."""

    media: PromptMedia

    def __new__(cls, text: str, media: PromptMedia) -> TextWithMedia:
        made = super().__new__(cls, text)
        made.media = media
        return made


class MediaCollector:
    """Collects the images and sounds of a request while it is parsed, for a model that sees or
    hears."""

    def __init__(self, sees: bool = True, hears: bool = False) -> None:
        self.sees, self.hears = sees, hears
        self._secret = os.urandom(16).hex()
        self._media: list[EncodedImage | EncodedAudio] = []

    def add(self, item: EncodedImage | EncodedAudio) -> str:
        """The placeholder of an image or a sound."""
        self._media.append(item)
        return _stand_in(self._secret, len(self._media) - 1)

    def collected(self) -> PromptMedia | None:
        """All of them, within the bounds of a request; None = there are none. Raises
        InvalidRequestError."""
        if not self._media:
            return None
        found = PromptMedia(self._secret, tuple(self._media))
        read_headers(found.images)
        check_sounds(found.sounds)
        return found


def _stand_in(secret: str, number: int) -> str:
    return f"{_OPEN}{secret}:{number}{_CLOSE}"
