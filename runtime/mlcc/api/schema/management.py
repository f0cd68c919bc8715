"""What is said to load and unload models: a name."""

from __future__ import annotations

from mlcc.api.schema.chat_fields import NOT_EMPTY
from mlcc.api.schema.schema import Object, honoured

NAMED_MODEL = Object(
    "NamedModel", (honoured("model", NOT_EMPTY, "One of its names.", required=True),)
)
"""The body of /models/load and /models/unload."""
