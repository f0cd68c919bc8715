"""What a model reads beside text, which decides how a request with images or sound is read."""

from __future__ import annotations

from typing import NamedTuple


class Modalities(NamedTuple):
    """Whether a model reads images, and sound in prompts."""

    images: bool = False
    sound: bool = False


TEXT_ONLY = Modalities()
ALL = Modalities(True, True)
