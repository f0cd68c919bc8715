"""Decompression of request bodies (gzip), bounded by the limit on the decompressed size."""

from __future__ import annotations

import zlib
from collections.abc import Mapping

from mlcc.api.errors import EncodingError
from mlcc.errors import InvalidRequestError
from mlcc.service.http.types import check_size

_GZIP = 16 + zlib.MAX_WBITS
_PLAIN, _PACKED = ("", "identity"), ("gzip", "x-gzip")


def check_encoding(headers: Mapping[str, str]) -> str:
    """Return "gzip", or "" for an uncompressed body. Raises EncodingError for any other
    encoding."""
    found = headers.get("content-encoding", "").strip().lower()
    if found not in (*_PLAIN, *_PACKED):
        raise EncodingError(
            f"the body is encoded as {found[:80]!a}, which is not read here; send it plain, or "
            "with 'Content-Encoding: gzip'",
            code="unsupported_encoding",
        )
    return "gzip" if found in _PACKED else ""


def unpacked(body: bytes, limit: int) -> bytes:
    """Return the decompressed body. Raises BodyTooLargeError as soon as the limit is exceeded, and
    InvalidRequestError for invalid gzip."""
    reader = zlib.decompressobj(_GZIP)
    try:
        found = reader.decompress(body, limit + 1)
    except zlib.error as error:
        raise _not_gzip(str(error)) from None
    check_size(len(found), limit)
    if not reader.eof:
        raise _not_gzip("it ends too early")
    if reader.unused_data:
        raise _not_gzip("something follows its end")
    return found


def _not_gzip(why: str) -> InvalidRequestError:
    return InvalidRequestError(f"the body is not gzip, as it says: {why}", code="invalid_encoding")
