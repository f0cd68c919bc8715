"""Every way to write calls, by name, and the one that a chat template teaches."""

from __future__ import annotations

from mlcc.api.tools.hermes import HERMES
from mlcc.api.tools.plain_json import PLAIN_JSON
from mlcc.api.tools.port import Format

FORMATS: dict[str, Format] = {made.name: made for made in (HERMES, PLAIN_JSON)}
_SIGNS: tuple[tuple[str, str], ...] = (("<tool_call>", "hermes"),)
"""What only templates of one way have in them; the first that is found counts."""


def pick(template: str) -> Format:
    """The way that a template shows; plain JSON if it shows none."""
    name = next((name for sign, name in _SIGNS if sign in template), PLAIN_JSON.name)
    return FORMATS[name]
