"""The port of files and batches: what `protocols/files.py` and `protocols/batches.py` ask of a host
that keeps them. `mlcc.batches.manager` implements it for a server; other hosts have none."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any, Protocol

from mlcc.api.openai.batch_shapes import Batch, BatchList, FileDeleted, StoredFile, StoredFileList
from mlcc.errors import UnsupportedError
from mlcc.service.http.types import FormPart
from mlcc.util.fast_dataclass import fast_dataclass


@fast_dataclass(frozen=True)
class Page:
    """Which entries of a list are wanted."""

    limit: int
    after: str | None = None
    """The last entry of the page before; None = from the beginning."""
    newest_first: bool = True
    purpose: str | None = None


class Batches(Protocol):
    """Files and batches. What belongs to another tenant does not exist: NotFoundError."""

    max_file_bytes: int
    """Largest file that may be uploaded."""

    async def upload(self, tenant: str, form: AsyncIterator[FormPart]) -> StoredFile:
        """Keep an uploaded file. Raises InvalidRequestError or BodyTooLargeError."""
        ...

    async def files(self, tenant: str, page: Page) -> StoredFileList:
        """A page of the tenant's files."""
        ...

    async def file(self, tenant: str, name: str) -> StoredFile:
        """A file's record."""
        ...

    async def content(self, tenant: str, name: str) -> AsyncIterator[str]:
        """A file's text, in pieces."""
        ...

    async def delete_file(self, tenant: str, name: str) -> FileDeleted:
        """Delete a file. Raises InvalidRequestError while a batch reads it."""
        ...

    async def create(self, tenant: str, fields: Mapping[str, Any]) -> Batch:
        """Begin a batch. fields: of the table `mlcc.api.openai.batches.BATCH`, checked."""
        ...

    async def list(self, tenant: str, page: Page) -> BatchList:
        """A page of the tenant's batches."""
        ...

    async def get(self, tenant: str, name: str) -> Batch:
        """A batch with its present state."""
        ...

    async def cancel(self, tenant: str, name: str) -> Batch:
        """End a batch. Raises InvalidRequestError if it has ended."""
        ...


def no_batches() -> UnsupportedError:
    """The error of hosts without a place for files."""
    return UnsupportedError(
        "files and batches are kept by `mlcc serve` alone; here send the requests one by one, or "
        "type `mlcc batch MODEL IN.jsonl -o OUT.jsonl`",
        code="no_batches",
    )
