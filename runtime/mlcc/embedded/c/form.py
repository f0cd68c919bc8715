"""Forms (multipart/form-data, RFC 7578) that are in memory as a whole, as an app sends them. The
server reads them as they arrive, by a library (`mlcc.server.http.multipart`)."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping

from mlcc.api.errors import BodyTooLargeError, MediaTypeError
from mlcc.errors import InvalidRequestError
from mlcc.service.http.types import FormPart

MOST_PARTS = 16
_FORM = "multipart/form-data"
_BOUNDARY = re.compile(r';\s*boundary=(?:"([^"]{1,70})"|([^\s;"]{1,70}))', re.IGNORECASE)
_DISPOSITION = re.compile(rb"^content-disposition:([^\r\n]*)", re.IGNORECASE | re.MULTILINE)
_ESCAPED = re.compile(rb"\\(.)")


async def form_in_memory(
    headers: Mapping[str, str], body: bytes, most: int
) -> AsyncIterator[FormPart]:
    """The parts of a form of at most `most` bytes. Raises BodyTooLargeError, MediaTypeError and
    InvalidRequestError."""
    if len(body) > most:
        raise BodyTooLargeError(
            f"the form is larger than {most >> 20} MB; send less", code="body_too_large"
        )
    mark = b"\r\n--" + _boundary(headers.get("content-type", ""))
    _, *parts = (b"\r\n" + body).split(mark, MOST_PARTS + 1)
    if not parts or (len(parts) <= MOST_PARTS and parts[-1][:2] != b"--"):
        raise _wrong("it ends before its last boundary")
    for number, part in enumerate(parts):
        if part[:2] == b"--":
            return
        if number == MOST_PARTS:
            raise InvalidRequestError(
                f"the form has more than {MOST_PARTS} fields; leave some out",
                code="too_many_values",
            )
        yield _part(part)


def _boundary(kind: str) -> bytes:
    found = _BOUNDARY.search(kind)
    if kind.partition(";")[0].strip().lower() != _FORM or found is None:
        raise MediaTypeError(
            f"the body is declared as '{kind[:80] or 'nothing'}'; send a form, "
            f"'{_FORM}; boundary=...', with a field 'file'",
            code="unsupported_media_type",
        )
    return (found[1] or found[2]).encode()


def _part(part: bytes) -> FormPart:
    head, empty, content = part.partition(b"\r\n\r\n")
    if not empty:
        raise _wrong("a field has no empty line before its content")
    found = _DISPOSITION.search(head)
    said = found[1] if found else b""
    name = _option(said, b"name")
    return FormPart(name or "", _option(said, b"filename"), _whole(content))


def _option(said: bytes, name: bytes) -> str | None:
    """An option of a header, such as name="file"."""
    pattern = rb";\s*" + name + rb'=(?:"((?:[^"\\]|\\.)*)"|([^\s;"]+))'
    found = re.search(pattern, said, re.IGNORECASE)
    if found is None:
        return None
    value = found[2] if found[1] is None else _ESCAPED.sub(rb"\1", found[1])
    return value.decode("utf-8", "replace")


async def _whole(content: bytes) -> AsyncIterator[bytes]:
    yield content


def _wrong(why: str) -> InvalidRequestError:
    return InvalidRequestError(
        f"the body is no form of the declared boundary: {why}", code="invalid_form"
    )
