"""The request table of OpenAI's Batch API, and the lines of its files.

A batch is a file of JSON lines, each a request with an id of its own:

    {"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": {...}}

Its output has a line of the same id for each, in the order of the input.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

from mlcc.api.schema.metadata_field import PAIRS
from mlcc.api.schema.schema import NOT_EMPTY, Integer, Object, Text, honoured
from mlcc.errors import InvalidRequestError, UnsupportedError
from mlcc.util.fast_dataclass import fast_dataclass

ENDPOINTS = ("/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/responses")
"""Addresses that the lines of a batch may ask."""
WINDOW = "24h"
WINDOW_S = 24 * 3600
MOST_ID = 512
"""Most characters of a `custom_id`."""
_PREFIXES = (64, 256, 1024, 4096, 16384, 65536)
"""Lengths in characters of the prefixes by which lines are sorted."""

EXPIRY = Object(
    "BatchExpiry",
    (
        honoured("anchor", Text(choices=("created_at",)), "When the time begins.", required=True),
        honoured("seconds", Integer(3600, 30 * 24 * 3600), "How long it is.", required=True),
    ),
)
BATCH = Object(
    "BatchRequest",
    (
        honoured("input_file_id", NOT_EMPTY, "A file of the purpose 'batch'.", required=True),
        honoured("endpoint", Text(choices=ENDPOINTS), "What each line asks.", required=True),
        honoured(
            "completion_window",
            Text(choices=(WINDOW,)),
            "When lines without an answer expire.",
            required=True,
        ),
        honoured("metadata", PAIRS, "Kept with the batch."),
        honoured("output_expires_after", EXPIRY, "When the files of its answers are deleted."),
    ),
)


@fast_dataclass(frozen=True)
class BatchLine:
    """One request of a batch."""

    custom_id: str
    url: str
    body: Mapping[str, Any]

    @property
    def order(self) -> str:
        """A text by which lines sort so that those with a common prefix of their prompts are next
        to each other: they are answered at about the same time, and the prefix cache has what they
        share. Digests of longer and longer prefixes."""
        shown = [self.body.get(name) for name in ("model", "tools", "instructions", "system")]
        prompts = [self.body.get(name) for name in ("messages", "prompt", "input")]
        text = json.dumps([*shown, *prompts])
        return "".join(_digest(text[:size]) for size in _PREFIXES if size < len(text))


def parse_line(value: Any, endpoint: str = "") -> BatchLine:
    """The request of a line's JSON value. endpoint: the address of all lines; "" = each may have
    one of ENDPOINTS. Raises InvalidRequestError or UnsupportedError, which name the field."""
    if not isinstance(value, Mapping):
        raise _wrong("", "a line must be a JSON object with 'custom_id', 'method', 'url', 'body'")
    custom_id = value.get("custom_id")
    if not isinstance(custom_id, str) or not 1 <= len(custom_id) <= MOST_ID:
        raise _wrong("custom_id", f"'custom_id' must be a text of 1 to {MOST_ID} characters")
    Text().check(custom_id, "custom_id")
    if value.get("method", "POST") != "POST":
        raise _wrong("method", "'method' must be 'POST'")
    url, allowed = value.get("url"), (endpoint,) if endpoint else ENDPOINTS
    if url not in allowed:
        raise _wrong("url", f"'url' must be {' or '.join(allowed)}")
    body = value.get("body")
    if not isinstance(body, Mapping):
        raise _wrong("body", "'body' must be a JSON object: the request")
    if body.get("stream"):
        raise UnsupportedError(
            "'stream' is not possible in a batch; leave it out",
            param="body.stream",
            code="unsupported_parameter",
        )
    return BatchLine(custom_id, str(url), body)


def answer_line(number: int, custom_id: str, status: int, request_id: str, body: str) -> str:
    """A line of an output: the answer, or the error with its HTTP status. body: JSON text."""
    identity = json.dumps(custom_id, ensure_ascii=False)
    return (
        f'{{"id":"batch_req_{number}","custom_id":{identity},"response":{{"status_code":{status},'
        f'"request_id":"{request_id}","body":{body}}},"error":null}}\n'
    )


def unanswered_line(number: int, custom_id: str, code: str, message: str) -> str:
    """A line of an output without an answer, of a batch that was cancelled or has expired."""
    line = {
        "id": f"batch_req_{number}",
        "custom_id": custom_id,
        "response": None,
        "error": {"code": code, "message": message},
    }
    return json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n"


def _wrong(param: str, message: str) -> InvalidRequestError:
    return InvalidRequestError(message, param=param or None, code="invalid_value")


def _digest(text: str) -> str:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=5).hexdigest()
