"""Exports a request in progress as bytes, and imports it into another engine and executor.

Used for disaggregated prefill, and to migrate requests away from a server that stops. The format,
little-endian (docs/internals/kv_transfer.md describes it for other languages):

    0    "MLCCREQ" and the version, an ASCII digit
    8    u64: total bytes, these included
    16   u64: bytes of the header
    24   sha256 of all that follows
    56   the header: JSON of `Header`
    ...  pages: group after group, as `Executor.read_pages` returns them

Imported bytes are checked in full before anything changes: length, checksum, types and ranges of
the header, identity and number of the pages. They are neither secret nor signed: a sender is
trusted to submit any request.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from itertools import accumulate, pairwise
from struct import Struct

from mlcc.artifact.records import RecordError, from_plain, to_plain
from mlcc.engine.batch.executor import Executor
from mlcc.engine.batch.tables import CacheGroup
from mlcc.engine.migration import ExportedRequest, Identity, Migration, bad_export
from mlcc.engine.request import Request
from mlcc.engine.sampling.grammar import Grammars
from mlcc.errors import InvalidRequestError, UnsupportedError

MAGIC, VERSION = b"MLCCREQ", b"2"
MOST_HEADER_BYTES = 32 << 20
"""Enough for a million tokens and a grammar of any permitted size."""
_FRONT = Struct("<7scQQ32s")
_WORDS = {
    "layout": "laid out otherwise (another page size, heads, dtype of pages, or ABI)",
    "model": "of another model (its config, quantization or weights)",
    "tokenizer": "of another tokenizer",
}


@dataclass(frozen=True)
class Header:
    """Metadata of an exported request."""

    identity: Identity
    exported: ExportedRequest
    page_bytes: tuple[int, ...]
    """Bytes of one page of each cache group."""


@dataclass(frozen=True)
class Imported:
    """An imported request."""

    request: Request
    computed: bool
    """Whether its pages were imported; if not, they are computed again."""
    output_ids: tuple[int, ...] = ()
    """Output tokens before the export."""


def export_request(
    migration: Migration, executor: Executor, identity: Identity, request_id: str
) -> bytes:
    """Export a request. It continues here too: cancel it when the import has succeeded.

    Call it between steps. Raises InvalidRequestError for an unknown request, UnsupportedError if
    the device cannot export, DeviceError if it fails.
    """
    exported, ids = migration.export(request_id)
    pages = [executor.read_pages(g, own) if own else b"" for g, own in enumerate(ids)]
    return packed(Header(identity, exported, executor.page_bytes), pages)


def import_request(
    migration: Migration,
    executor: Executor,
    identity: Identity,
    data: bytes,
    grammars: Grammars | None = None,
    name: str = "",
) -> Imported:
    """Import an exported request, optionally under another id. Call it between steps.

    Raises InvalidRequestError for damaged bytes, for pages of another model or layout, or if the
    request cannot be answered here; UnsupportedError for a device or version without support.
    Nothing has changed then.
    """
    header, pages = unpacked(data, executor.capacity.groups)
    _check_identity(header.identity, identity)
    if header.page_bytes != executor.page_bytes:
        raise bad_export("its pages have another size than their layout says")
    exported, grammar = header.exported, None
    if name:
        exported = replace(exported, request=replace(exported.request, id=name))
    request = exported.request
    if request.structure is not None and grammars is not None:
        grammars.check(request.structure)
        grammar = grammars.open(request.structure)

    def write(group: int, ids: Sequence[int]) -> None:
        executor.write_pages(group, ids, pages[group])

    return Imported(request, migration.resume(exported, write, grammar), exported.output)


def without_pages(
    data: bytes, groups: Sequence[CacheGroup], output_ids: Sequence[int] = ()
) -> bytes:
    """The exported request without its pages, a few bytes: the importer computes them again.
    output_ids: tokens of its answer since the export. Raises as `unpacked`."""
    header, _ = unpacked(data, groups)
    exported = header.exported
    output, firsts = (*exported.output, *output_ids), (0,) * len(groups)
    exported = replace(exported, output=output, computed=0, first_pages=firsts, held=())
    return packed(replace(header, exported=exported), [])


def packed(header: Header, pages: Sequence[bytes]) -> bytes:
    """Header and pages as bytes."""
    text = json.dumps(to_plain(header), ensure_ascii=False, allow_nan=False).encode()
    body = b"".join((text, *pages))
    total, digest = _FRONT.size + len(body), hashlib.sha256(body).digest()
    return _FRONT.pack(MAGIC, VERSION, total, len(text), digest) + body


def unpacked(data: bytes, groups: Sequence[CacheGroup]) -> tuple[Header, list[bytes]]:
    """Header and pages, for an engine with these groups. Raises InvalidRequestError, and
    UnsupportedError for another version."""
    if len(data) < _FRONT.size:
        raise bad_export(f"it ends after {len(data)} bytes")
    magic, version, total, length, digest = _FRONT.unpack_from(data)
    if magic != MAGIC:
        raise bad_export("it begins like nothing that was exported")
    if version != VERSION:
        raise UnsupportedError(
            f"the exported request is of version {version!r}, this mlcc reads {VERSION!r}; use the "
            "same mlcc on both sides"
        )
    if total != len(data):
        raise bad_export(f"it has {len(data)} bytes and says {total}")
    body = memoryview(data)[_FRONT.size :]
    if hashlib.sha256(body).digest() != digest:
        raise bad_export("its checksum is another's")
    if length > min(len(body), MOST_HEADER_BYTES):
        raise bad_export(f"its header would have {length} bytes")
    header = _header(bytes(body[:length]))
    return header, _pages(header, body[length:], groups)


def _header(text: bytes) -> Header:
    try:
        return from_plain(Header, json.loads(text, parse_constant=_no_number))
    except InvalidRequestError as error:  # the request's own checks
        raise bad_export(error.message) from error
    except (RecordError, ValueError, TypeError, RecursionError) as error:
        raise bad_export(f"its header is none ({error})") from error


def _no_number(text: str) -> None:
    raise ValueError(f"it holds {text}")


def _pages(header: Header, rest: memoryview, groups: Sequence[CacheGroup]) -> list[bytes]:
    """The pages of each group; empty if there are none."""
    exported, each = header.exported, header.page_bytes
    if not len(exported.first_pages) == len(each) == len(groups):
        raise _foreign("layout")
    counts = exported.counts(groups)
    sizes = [count * size for count, size in zip(counts, each, strict=True)]
    if min((*counts, *each)) < 0 or sum(sizes) != len(rest):
        raise bad_export(f"it has {len(rest)} bytes of pages and says {sum(sizes)}")
    ends = accumulate(sizes, initial=0)
    return [bytes(rest[begin:end]) for begin, end in pairwise(ends)]


def _check_identity(found: Identity, here: Identity) -> None:
    own = asdict(here)
    for name, value in asdict(found).items():
        if value != own[name]:
            raise _foreign(name)


def _foreign(what: str) -> InvalidRequestError:
    return InvalidRequestError(
        f"the exported request's pages are {_WORDS[what]}; send it to a server with the same "
        "compiled model, or send the request itself",
        code="foreign_export",
    )
