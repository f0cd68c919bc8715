"""Forms (multipart/form-data, RFC 7578) read as they arrive, by the library python-multipart."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Mapping

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from mlcc.api.errors import MediaTypeError
from mlcc.errors import InvalidRequestError
from mlcc.service.http.types import FormPart

MOST_PARTS = 16
FORM = "multipart/form-data"
_Headers = dict[bytes, bytes]
_END = object()
"""The end of a part."""


def form_of(headers: Mapping[str, str], pieces: AsyncIterator[bytes]) -> FormReader:
    """A reader of a request's form. Raises MediaTypeError unless the request says that it has
    one."""
    kind, options = parse_options_header(headers.get("content-type", ""))
    boundary = options.get(b"boundary", b"")
    if kind.decode("latin-1").lower() != FORM or not 1 <= len(boundary) <= 70:
        raise MediaTypeError(
            f"the body is declared as '{kind.decode('latin-1')[:80] or 'nothing'}'; send a form: "
            "`curl -F purpose=batch -F file=@lines.jsonl`, or `client.files.create` of OpenAI's "
            "library",
            code="unsupported_media_type",
        )
    return FormReader(boundary, pieces)


class _Events:
    """What the parser has found. It does not have the parser: both would wait in memory for a
    garbage collection."""

    def __init__(self) -> None:
        self.found: deque[object] = deque()
        """Headers of a part, bytes of its content, and _END."""
        self.whole = False
        self._headers: _Headers = {}
        self._name = self._value = b""

    def parser(self, boundary: bytes) -> MultipartParser:
        """A parser whose events come here."""
        return MultipartParser(
            boundary,
            {
                "on_part_begin": self._begin,
                "on_header_field": self._header_name,
                "on_header_value": self._header_value,
                "on_header_end": self._header_end,
                "on_headers_finished": lambda: self.found.append(self._headers),
                "on_part_data": lambda data, start, end: self.found.append(data[start:end]),
                "on_part_end": lambda: self.found.append(_END),
                "on_end": self._end,
            },
        )

    def _begin(self) -> None:
        self._headers, self._name, self._value = {}, b"", b""

    def _header_name(self, data: bytes, start: int, end: int) -> None:
        self._name += data[start:end]

    def _header_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]

    def _header_end(self) -> None:
        self._headers[self._name.lower()] = self._value
        self._name = self._value = b""

    def _end(self) -> None:
        self.whole = True


class FormReader:
    """The parts of a form. Memory is bounded by a piece of the body."""

    def __init__(self, boundary: bytes, pieces: AsyncIterator[bytes]) -> None:
        self._pieces, self._events = pieces, _Events()
        self._parser = self._events.parser(boundary)

    async def parts(self) -> AsyncIterator[FormPart]:
        """The parts; what is not read of a part is skipped. Raises InvalidRequestError."""
        count = 0
        while (event := await self._next()) is not None:
            if not isinstance(event, dict):
                continue
            if (count := count + 1) > MOST_PARTS:
                raise InvalidRequestError(
                    f"the form has more than {MOST_PARTS} fields; leave some out",
                    code="too_many_values",
                )
            yield _part(event, self._content())

    async def _content(self) -> AsyncIterator[bytes]:
        while (event := await self._next()) is not _END:
            if isinstance(event, bytes):
                yield event

    async def _next(self) -> object | None:
        """The next event; None = the form is complete. Raises InvalidRequestError if it is not one,
        or is cut off."""
        while not self._events.found:
            if (piece := await anext(self._pieces, None)) is None:
                if self._events.whole:
                    return None
                raise _wrong("it ends before its last boundary")
            try:
                self._parser.write(piece)
            except FormParserError as error:
                raise _wrong(str(error)) from None
        return self._events.found.popleft()


def _part(headers: _Headers, content: AsyncIterator[bytes]) -> FormPart:
    _, options = parse_options_header(headers.get(b"content-disposition", b""))
    filename = options.get(b"filename")
    return FormPart(
        options.get(b"name", b"").decode("utf-8", "replace"),
        None if filename is None else filename.decode("utf-8", "replace"),
        content,
    )


def _wrong(why: str) -> InvalidRequestError:
    return InvalidRequestError(
        f"the body is no form of the declared boundary: {why}", code="invalid_form"
    )
