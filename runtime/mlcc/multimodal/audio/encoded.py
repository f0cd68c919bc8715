"""Sound in a request, as it was sent, and the bounds of all of it. Nothing is decoded here: see
`mlcc.multimodal.audio.sound`. Standard library only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mlcc.errors import InvalidRequestError
from mlcc.limits import default
from mlcc.util.fast_dataclass import fast_dataclass


@fast_dataclass(frozen=True)
class EncodedAudio:
    """Sound as it came: the bytes of a file, and the field of the request that has it."""

    data: bytes
    field: str = "audio"


def is_sound(given: Any) -> bool:
    """Whether this part of a request is sound."""
    return isinstance(given, EncodedAudio)


def check_sounds(sounds: Sequence[EncodedAudio]) -> None:
    """Raise InvalidRequestError for more sound than a request may have, before it is decoded."""
    if len(sounds) > (most := default("max_audios")):
        raise _too_much(sounds[most].field, f"is sound {most + 1} of the request", most, "")
    size = 0
    for sound in sounds:
        size += len(sound.data)
        if size > (most := default("max_audio_bytes")):
            raise _too_much(sound.field, f"makes it {size} bytes of sound", most, " bytes")


def _too_much(field: str, what: str, most: int, unit: str) -> InvalidRequestError:
    return InvalidRequestError(
        f"'{field}' {what}, and a request may have {most}{unit} at most; send less sound, or "
        "16 kHz mono, which is what models hear",
        param=field,
        code="audio_too_large",
    )
