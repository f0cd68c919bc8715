"""The field `metadata` of what OpenAI's API stores: responses and batches."""

from __future__ import annotations

from collections.abc import Mapping

from mlcc.api.schema.schema import ANYTHING, Custom, Json, Text, refuse

MOST_PAIRS, MOST_KEY, MOST_VALUE = 16, 64, 512
"""OpenAI's limits."""


def _pairs(value: Json, where: str) -> dict[str, str]:
    good = isinstance(value, Mapping) and len(value) <= MOST_PAIRS
    if not good or not all(len(key) <= MOST_KEY for key in value):
        raise refuse(PAIRS, value, where)
    for key, text in value.items():
        Text().check(text, f"{where}.{key}")
        if len(text) > MOST_VALUE:
            raise refuse(PAIRS, value, where)
    return dict(value)


PAIRS = Custom(
    f"an object of at most {MOST_PAIRS} texts of at most {MOST_VALUE} characters",
    _pairs,
    (ANYTHING,),
)
