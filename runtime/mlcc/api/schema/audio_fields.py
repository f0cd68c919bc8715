"""Sound in requests: OpenAI's content part `input_audio`, which holds a file as base64.

A model that hears nothing refuses it, or leaves it out of a tool's result with a note.
"""

from __future__ import annotations

import binascii
from base64 import b64decode
from collections.abc import Callable
from functools import partial

from mlcc.api.schema.image_fields import LeftOut, left_out
from mlcc.api.schema.schema import Json, Object, Text, honoured
from mlcc.errors import InvalidRequestError
from mlcc.limits import default
from mlcc.multimodal.audio.encoded import EncodedAudio


class AudioPart(LeftOut):
    """Sound among the parts of a message: as text its note, and `sound` for a model that hears."""

    _read: Callable[[], EncodedAudio]

    def __new__(cls, kind: str, read: Callable[[], EncodedAudio]) -> AudioPart:
        made = super().__new__(cls, left_out(kind))
        made.kind, made._read = kind, read
        return made

    def sound(self) -> EncodedAudio:
        """The sound. Raises InvalidRequestError that names its field."""
        return self._read()


def audio_part(part: Json, where: str) -> AudioPart:
    """A part of the type `input_audio`."""
    return AudioPart("input_audio", partial(_of_openai, part, where))


def _of_openai(part: Json, where: str) -> EncodedAudio:
    given = AUDIO_PART.check(part, where)["input_audio"]
    where = f"{where}.input_audio.data"
    return EncodedAudio(_from_base64(given["data"], where), where)


def _from_base64(data: str, where: str) -> bytes:
    """The bytes of a file. Raises InvalidRequestError for other text, and for more than all sounds
    of a request may have, before it is decoded."""
    most = default("max_audio_bytes")
    if len(data) > most * 3 // 2:
        raise InvalidRequestError(
            f"'{where}' has {len(data)} characters of base64, and the sounds of a request may "
            f"have {most} bytes; send less sound",
            param=where,
            code="audio_too_large",
        )
    try:
        found = b64decode("".join(data.split()), validate=True)
    except (ValueError, binascii.Error):
        found = b""
    if found:
        return found
    raise InvalidRequestError(
        f"'{where}' is no base64 of a sound; send the bytes of a WAV or FLAC file as base64",
        param=where,
        code="invalid_audio",
    )


FORMATS = ("wav", "flac", "mp3", "ogg", "m4a", "aac", "webm", "caf", "amr", "aiff")
INPUT_AUDIO = Object(
    "InputAudio",
    (
        honoured("data", Text(), "The file as base64.", required=True),
        honoured(
            "format",
            Text(FORMATS),
            "What the file is; its first bytes decide. Ogg and mp3 need the extra `audio`, those "
            "from m4a on the extra `av`.",
        ),
    ),
)
AUDIO_PART = Object(
    "AudioPart",
    (
        honoured("type", Text(("input_audio",)), required=True),
        honoured("input_audio", INPUT_AUDIO, "A sound.", required=True),
    ),
)
