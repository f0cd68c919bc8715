"""Response types of OpenAI's Files and Batch APIs. `batches.py` fills them; no code is here."""

from __future__ import annotations

from typing import Literal, TypeAlias, TypedDict

FilePurpose: TypeAlias = Literal["batch", "batch_output"]
"""batch = the lines of a batch, uploaded; batch_output = the lines of its answers or errors."""
BatchStatus: TypeAlias = Literal[
    "validating",
    "failed",
    "in_progress",
    "finalizing",
    "completed",
    "expired",
    "cancelling",
    "cancelled",
]


class StoredFile(TypedDict):
    """A file of an API key."""

    id: str
    object: Literal["file"]
    bytes: int
    created_at: int
    expires_at: int | None
    filename: str
    purpose: FilePurpose
    status: Literal["processed"]


class StoredFileList(TypedDict):
    """A page of GET /v1/files."""

    object: Literal["list"]
    data: list[StoredFile]
    first_id: str | None
    last_id: str | None
    has_more: bool


class FileDeleted(TypedDict):
    """The answer of DELETE /v1/files/{id}."""

    id: str
    object: Literal["file"]
    deleted: Literal[True]


class BatchError(TypedDict):
    """Why a batch was refused."""

    code: str
    message: str
    param: str | None
    """The field of the line that is wrong."""
    line: int | None
    """Number of the line, from 1 on."""


class BatchErrors(TypedDict):
    """The first errors of a batch that was refused."""

    object: Literal["list"]
    data: list[BatchError]


class BatchCounts(TypedDict):
    """Lines of a batch by their state."""

    total: int
    completed: int
    """Lines that were answered."""
    failed: int
    """Lines that were refused, or whose answer failed."""


class Batch(TypedDict):
    """A batch and its state. Times are Unix seconds, null if the state was not reached."""

    id: str
    object: Literal["batch"]
    endpoint: str
    errors: BatchErrors | None
    input_file_id: str
    completion_window: Literal["24h"]
    status: BatchStatus
    output_file_id: str | None
    """The file of answers, once the batch has ended and there are any."""
    error_file_id: str | None
    """The file of lines without an answer, once the batch has ended and there are any."""
    created_at: int
    in_progress_at: int | None
    expires_at: int
    finalizing_at: int | None
    completed_at: int | None
    failed_at: int | None
    expired_at: int | None
    cancelling_at: int | None
    cancelled_at: int | None
    request_counts: BatchCounts
    metadata: dict[str, str] | None


class BatchList(TypedDict):
    """A page of GET /v1/batches, the newest first."""

    object: Literal["list"]
    data: list[Batch]
    first_id: str | None
    last_id: str | None
    has_more: bool
