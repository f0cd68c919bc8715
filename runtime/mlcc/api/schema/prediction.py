"""OpenAI's `prediction`: what much of an answer will be, as whoever asks foretells.

It changes no answer. Where there is speculation (`mlcc serve --speculate lookup`) it is looked up
in, so that what was foretold rightly comes faster.
"""

from __future__ import annotations

from collections.abc import Mapping

from mlcc.api.schema.message_fields import TEXT_CONTENT
from mlcc.api.schema.schema import Object, honoured
from mlcc.api.schema.types import Custom, Json, Text, refuse

PREDICTION = Object(
    "Prediction",
    (
        honoured("type", Text(("content",)), "Always `content`.", required=True),
        honoured("content", TEXT_CONTENT, "The text, or texts that are joined.", required=True),
    ),
)


def _prediction(value: Json, where: str) -> dict[str, object]:
    if not isinstance(value, Mapping):
        raise refuse(CHECKED, value, where)
    return PREDICTION.check(value, where)


CHECKED = Custom("an object with a type and a content", _prediction, (PREDICTION,))
FIELD = honoured(
    "prediction",
    CHECKED,
    "What much of the answer will be, as of a file that is edited: it may come faster, and is the "
    "same.",
)


def prediction_of(fields: dict[str, object]) -> str:
    """The text of a checked field; "" = there is none."""
    found = fields.get("prediction")
    if not isinstance(found, dict):
        return ""
    content = found["content"]
    return content if isinstance(content, str) else "".join(content)
