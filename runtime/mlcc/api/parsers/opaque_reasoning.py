"""Reasoning that a client stores and sends back unread: OpenAI's encrypted and Anthropic's signed
reasoning.

Neither secret nor authenticated here: base64 of the text after a prefix.
"""

from __future__ import annotations

import base64

MARK = "mlcc."


def packed(text: str) -> str:
    """The text in its opaque form."""
    return MARK + base64.b64encode(text.encode()).decode()


def unpacked(word: str) -> str:
    """The text; "" for a value that `packed` did not make."""
    if not word.startswith(MARK):
        return ""
    try:
        return base64.b64decode(word[len(MARK) :], validate=True).decode()
    except ValueError:
        return ""
