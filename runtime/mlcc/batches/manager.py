"""The batches of a server: uploads, states, and the tasks that answer their lines. Implements the
port `mlcc.service.batches`.

A batch is validated, answered in the background and finalized; each state is in the store before it
begins, so that a server that was killed goes on where it was. Belongs to one event loop.
"""

from __future__ import annotations

import asyncio
import codecs
import logging
import os
import shutil
import sqlite3
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, Protocol, TypeVar

from mlcc.api.errors import BodyTooLargeError, BusyError
from mlcc.api.openai.batch_shapes import Batch, BatchList, FileDeleted, StoredFile, StoredFileList
from mlcc.api.openai.batches import EXPIRY, WINDOW_S
from mlcc.batches.lines import InputBounds, InputCheck, LineError
from mlcc.batches.output import OutputWriter
from mlcc.batches.runner import Answer, BatchInput, BatchRunner
from mlcc.batches.store import MAX_AGE_S, BatchStore, OpenBatch, StoreBounds, open_database
from mlcc.errors import CapacityError, InvalidRequestError, MlccError, UnsupportedError
from mlcc.service.batches import Page
from mlcc.service.http.json_body import Inline, Offload
from mlcc.service.http.types import FormPart
from mlcc.util.private_database import DatabaseThread

log = logging.getLogger("mlcc.server")
T = TypeVar("T")
_PIECE_BYTES = 1 << 18
MOST_UPLOADS = 4
"""Uploads of an API key at once."""
_MOST_FIELD = 1000
"""Bytes of a field of a form that is no file."""
DONE = ("completed", "failed", "expired", "cancelled")
"""States in which a batch has ended."""


class OwnerNames(Protocol):
    """Names of tenants in the store."""

    def of(self, tenant: str) -> str: ...

    def tenant(self, owner: str) -> str: ...


class BatchManager:
    """folder: where files and batches are kept; None = a temporary folder, deleted at the end.
    owners: makes the names of tenants in the database, whose tables `more` creates. answer: answers
    a request. slots: number of lines that are answered at once."""

    def __init__(
        self,
        folder: Path | None,
        owners: Callable[[sqlite3.Connection], OwnerNames],
        more: str,
        answer: Answer,
        slots: Callable[[], int],
        lines: InputBounds,
        bounds: StoreBounds,
        offload: Callable[[], Offload] = Inline,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.max_file_bytes = bounds.file_bytes
        self._folder, self._temporary = folder, folder is None
        self._new_owners, self._more, self._answer = owners, more, answer
        self._slots, self._line_bounds, self._bounds = slots, lines, bounds
        self._offload, self._now = offload, now
        self._opening = asyncio.Lock()
        self._uploads: Counter[str] = Counter()
        """Uploads of each owner that are on the way: their bytes are not in the store yet."""
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._answering: dict[str, asyncio.Task[None]] = {}
        """The part of each batch's task that cancelling the batch ends."""
        self._thread: DatabaseThread | None = None

    async def start(self) -> None:
        """Go on with the batches of a folder. Raises MlccError if it cannot be used."""
        if self._folder is not None:
            await self._store_opened()

    async def stop(self) -> None:
        """Stop all work; a folder that was given can be opened again. Idempotent."""
        tasks = [*self._tasks.values()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        if self._thread is not None:
            await asyncio.to_thread(self._thread.close)
            self._thread = None
            if self._temporary and self._folder is not None:
                await asyncio.to_thread(shutil.rmtree, self._folder, True)

    async def upload(self, tenant: str, form: AsyncIterator[FormPart]) -> StoredFile:
        """Keep an uploaded file. Raises InvalidRequestError, BodyTooLargeError or CapacityError,
        and keeps nothing then."""
        store, owner = await self._store_opened(), self._owners.of(tenant)
        if self._uploads[owner] >= MOST_UPLOADS:
            raise BusyError(
                f"{MOST_UPLOADS} files of this API key are being uploaded, which are the most at "
                "once; try again later",
                code="too_many_uploads",
            )
        self._uploads[owner] += 1
        try:
            return await self._upload(store, owner, form)
        except OSError as error:
            log.error("a file cannot be kept: %s", error)
            raise CapacityError(
                f"the server cannot write the file ({error.strerror}); delete files, or try again "
                "later",
                code="storage_full",
            ) from None
        finally:
            self._uploads[owner] -= 1
            self._uploads += Counter()  # drops zeros

    async def _upload(
        self, store: BatchStore, owner: str, form: AsyncIterator[FormPart]
    ) -> StoredFile:
        room = await self._run(store.check_room, owner)
        name = f"file-{os.urandom(12).hex()}"
        part = store.path(f"{name}.part")
        fields: dict[str, str] = {}
        filename: str | None = None
        try:
            async for field in form:
                if field.name == "file" and field.filename is not None and filename is None:
                    filename = field.filename[:255]
                    await self._write(part, field.content, room)
                else:
                    fields[field.name] = await _text(field)
            _check_purpose(fields.get("purpose"))
            if filename is None:
                raise InvalidRequestError(
                    "the form has no file; send it as the field 'file', with a file name",
                    param="file",
                    code="missing_required_parameter",
                )
            kept_s = _kept_s(fields)
            return await self._run(store.add_file, owner, name, filename, "batch", kept_s)
        finally:
            part.unlink(missing_ok=True)

    async def files(self, tenant: str, page: Page) -> StoredFileList:
        store = await self._store_opened()
        found, more = await self._run(store.files, self._owners.of(tenant), page)
        first, last = _ends([each["id"] for each in found])
        return {
            "object": "list",
            "data": found,
            "first_id": first,
            "last_id": last,
            "has_more": more,
        }

    async def file(self, tenant: str, name: str) -> StoredFile:
        store = await self._store_opened()
        return await self._run(store.file, self._owners.of(tenant), name)

    async def content(self, tenant: str, name: str) -> AsyncIterator[str]:
        await self.file(tenant, name)
        return _read((await self._store_opened()).path(name))

    async def delete_file(self, tenant: str, name: str) -> FileDeleted:
        store = await self._store_opened()
        await self._run(store.delete_file, self._owners.of(tenant), name)
        return {"id": name, "object": "file", "deleted": True}

    async def create(self, tenant: str, fields: Mapping[str, Any]) -> Batch:
        store, owner = await self._store_opened(), self._owners.of(tenant)
        file = await self._run(store.file, owner, fields["input_file_id"])
        if file["purpose"] != "batch":
            raise InvalidRequestError(
                f"'{file['id']}' has the purpose '{file['purpose']}'; give a file that was "
                "uploaded with the purpose 'batch'",
                param="input_file_id",
                code="invalid_value",
            )
        now = int(self._now())
        record: Batch = {
            "id": f"batch_{os.urandom(12).hex()}",
            "object": "batch",
            "endpoint": fields["endpoint"],
            "errors": None,
            "input_file_id": file["id"],
            "completion_window": "24h",
            "status": "validating",
            "output_file_id": None,
            "error_file_id": None,
            "created_at": now,
            "in_progress_at": None,
            "expires_at": now + WINDOW_S,
            "finalizing_at": None,
            "completed_at": None,
            "failed_at": None,
            "expired_at": None,
            "cancelling_at": None,
            "cancelled_at": None,
            "request_counts": {"total": 0, "completed": 0, "failed": 0},
            "metadata": fields.get("metadata"),
        }
        kept_s = fields.get("output_expires_after", {}).get("seconds", MAX_AGE_S)
        await self._run(store.add_batch, owner, record, kept_s)
        self._begin(OpenBatch(owner, record, kept_s))
        return record

    async def list(self, tenant: str, page: Page) -> BatchList:
        store = await self._store_opened()
        found, more = await self._run(store.batches, self._owners.of(tenant), page)
        first, last = _ends([each["id"] for each in found])
        return {
            "object": "list",
            "data": found,
            "first_id": first,
            "last_id": last,
            "has_more": more,
        }

    async def get(self, tenant: str, name: str) -> Batch:
        store = await self._store_opened()
        return await self._run(store.batch, self._owners.of(tenant), name)

    async def cancel(self, tenant: str, name: str) -> Batch:
        await self._store_opened()
        await self._run(self._begin_to_cancel, self._owners.of(tenant), name)
        if (answering := self._answering.get(name)) is not None:
            answering.cancel()
        return await self.get(tenant, name)

    def _begin_to_cancel(self, owner: str, name: str) -> None:
        """In the database's thread: the batch may end while it is cancelled."""
        status = self._store.batch(owner, name)["status"]
        if status in DONE:
            raise InvalidRequestError(
                f"the batch is {status} and cannot be cancelled", code="invalid_state"
            )
        if status in ("validating", "in_progress"):
            changes = {"status": "cancelling", "cancelling_at": int(self._now())}
            self._store.update_batch(name, changes)

    async def _store_opened(self) -> BatchStore:
        """The store, opened by the first that needs it."""
        async with self._opening:
            if self._thread is None:
                await asyncio.to_thread(self._open)
                for batch in await self._run(self._store.open_batches):
                    self._begin(batch)
        return self._store

    def _open(self) -> None:
        folder = self._folder or Path(tempfile.mkdtemp(prefix="mlcc-files-"))
        try:
            thread = DatabaseThread("mlcc-batches", lambda: open_database(folder, self._more))
        except (sqlite3.Error, OSError) as error:
            raise MlccError(
                f"files cannot be kept in {folder} ({error}); give --files another folder"
            ) from None
        self._owners = thread.now(self._new_owners, thread.db)
        self._store = thread.now(BatchStore, thread.db, folder, self._bounds, self._now)
        self._folder, self._thread = folder, thread
        self._runner: BatchRunner | None = None

    async def _run(self, work: Callable[..., T], *arguments: Any) -> T:
        assert self._thread is not None
        return await self._thread.run(work, *arguments)

    def _begin(self, batch: OpenBatch) -> None:
        name = batch.record["id"]
        task = self._tasks[name] = asyncio.ensure_future(self._process(batch))
        task.add_done_callback(lambda _: self._tasks.pop(name, None))

    async def _process(self, batch: OpenBatch) -> None:
        """Bring a batch from its present state to its end."""
        name = batch.record["id"]
        try:
            status: str = batch.record["status"]
            if status == "validating":
                status = await self._validate(batch)
            if status == "in_progress":
                status = await self._answer_lines(batch)
            if status != "failed":
                await self._finalize(batch, status)
        except Exception as error:  # a full disk: what is answered stays
            log.exception("the batch %s failed", name)
            with suppress(Exception):
                await self._fail(name, [LineError(None, _internal(error))])

    async def _validate(self, batch: OpenBatch) -> str:
        """Check the input and write its lines into the journal. Returns the next state."""
        record, store = batch.record, self._store
        name, path = record["id"], store.path(record["input_file_id"])
        await self._run(store.journal.remove, name)  # of a process that was killed
        check = InputCheck(path, record["endpoint"], self._line_bounds, store.journal, name)
        while await self._run(check.advance):
            pass
        if check.errors:
            await self._fail(name, check.errors)
            return "failed"
        changed = await self._run(self._advance_unless_cancelled, batch)
        return str(changed["status"])

    def _advance_unless_cancelled(self, batch: OpenBatch) -> Batch:
        """In the database's thread: a batch may be cancelled while it is validated."""
        found = self._store.batch(batch.owner, batch.record["id"])
        if found["status"] != "validating":
            return found
        changes = {"status": "in_progress", "in_progress_at": int(self._now())}
        return self._store.update_batch(found["id"], changes)

    async def _answer_lines(self, batch: OpenBatch) -> str:
        """Answer the lines until all are answered, the batch expires or is cancelled. Returns the
        next state."""
        record = batch.record
        name, path = record["id"], self._store.path(record["input_file_id"])
        left_s = record["expires_at"] - self._now()
        if left_s <= 0:  # the server was away
            return "expired"
        if self._runner is None:
            assert self._thread is not None
            slots = asyncio.Semaphore(self._slots())
            journal, offload = self._store.journal, self._offload
            self._runner = BatchRunner(self._answer, self._thread, journal, slots, offload)
        tenant = self._owners.tenant(batch.owner)
        work = asyncio.ensure_future(self._runner.run(BatchInput(name, path, tenant)))
        self._answering[name] = work
        try:
            now = await self._run(self._store.batch, batch.owner, name)
            if now["status"] == "cancelling":  # before there was anything to cancel
                return "cancelling"
            await asyncio.wait([work], timeout=left_s)
            if not work.done():
                return "expired"
            if work.cancelled():
                return "cancelling"
            work.result()
            return "finalizing"
        finally:
            del self._answering[name]
            work.cancel()
            await asyncio.wait([work])

    async def _finalize(self, batch: OpenBatch, status: str) -> None:
        """Write the output files and end the batch."""
        name, store, owner = batch.record["id"], self._store, batch.owner
        ending = {"cancelling": "cancelled", "finalizing": "completed"}.get(status, status)
        if ending == "completed":
            await self._update(name, status="finalizing", finalizing_at=int(self._now()))
        answers, errors = (f"file-{os.urandom(12).hex()}" for _ in range(2))
        counts = await self._run(store.journal.counts, name)
        paths = [store.path(f"{each}.part") for each in (answers, errors)]
        writer = OutputWriter(store.journal, name, paths[0], paths[1], ending)
        while await self._run(writer.advance):
            pass
        has = writer.close()
        changes: dict[str, Any] = {"status": ending, f"{ending}_at": int(self._now())}
        for field, file, made in zip(("output", "error"), (answers, errors), has, strict=True):
            if made:
                filename = f"{name}_{field}.jsonl"
                await self._run(store.add_file, owner, file, filename, "batch_output", batch.kept_s)
                changes[f"{field}_file_id"] = file
        changes["request_counts"] = {
            "total": counts.total,
            "completed": counts.completed,
            "failed": counts.total - counts.completed,
        }
        await self._update(name, is_open=False, **changes)
        await self._run(store.journal.remove, name)

    async def _fail(self, name: str, errors: Sequence[LineError]) -> None:
        found = [
            {
                "code": each.error.code or "invalid_value",
                "message": each.error.message,
                "param": each.error.param,
                "line": each.line,
            }
            for each in errors
        ]
        changes = {
            "status": "failed",
            "failed_at": int(self._now()),
            "errors": {"object": "list", "data": found},
        }
        await self._update(name, is_open=False, **changes)
        await self._run(self._store.journal.remove, name)

    async def _update(self, name: str, is_open: bool = True, **changes: Any) -> None:
        await self._run(self._store.update_batch, name, changes, is_open)

    async def _write(self, part: Path, content: AsyncIterator[bytes], room: int) -> None:
        """Write a file as it arrives. Raises InvalidRequestError unless it is UTF-8."""
        decoder, size = codecs.getincrementaldecoder("utf-8")(), 0

        def write(file: BinaryIO, piece: bytes, final: bool = False) -> None:
            try:
                decoder.decode(piece, final)
            except UnicodeDecodeError as error:
                raise InvalidRequestError(
                    f"the file is no text in UTF-8: byte {size + error.start} is "
                    f"0x{error.object[error.start]:02x}; save it as UTF-8",
                    param="file",
                    code="invalid_text",
                ) from None
            file.write(piece)

        file = await asyncio.to_thread(_new_file, part)
        try:
            async for piece in content:
                if size + len(piece) > room:
                    raise BodyTooLargeError(
                        f"the file has more than {room} bytes, which is what a file of this API "
                        "key may have now; send the lines in several files, delete files, or "
                        "allow more (--max-file of `mlcc serve`)",
                        param="file",
                        code="file_too_large",
                    )
                await asyncio.to_thread(write, file, piece)
                size += len(piece)
            await asyncio.to_thread(write, file, b"", True)
        finally:
            file.close()


def _new_file(path: Path) -> BinaryIO:
    return os.fdopen(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb")


async def _read(path: Path) -> AsyncIterator[str]:
    """A file's text in pieces; a character is never cut."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    file = await asyncio.to_thread(path.open, "rb")
    try:
        while piece := await asyncio.to_thread(file.read, _PIECE_BYTES):
            yield decoder.decode(piece)
    finally:
        file.close()


async def _text(field: FormPart) -> str:
    """A short field of a form. Raises InvalidRequestError."""
    data = bytearray()
    async for piece in field.content:
        data += piece
        if len(data) > _MOST_FIELD:
            raise InvalidRequestError(
                f"the form's field {field.name[:80]!a} is longer than {_MOST_FIELD} bytes; send a "
                "file as the field 'file', with a file name",
                param=field.name[:80],
                code="invalid_value",
            )
    return data.decode("utf-8", "replace")


def _check_purpose(purpose: str | None) -> None:
    if purpose is None:
        raise InvalidRequestError(
            "'purpose' is missing; it must be 'batch'",
            param="purpose",
            code="missing_required_parameter",
        )
    if purpose != "batch":
        raise UnsupportedError(
            f"files of the purpose {purpose[:80]!a} are not used here; 'batch' is what there is: "
            "the lines of a batch (POST /v1/batches)",
            param="purpose",
            code="unsupported_purpose",
        )


def _kept_s(fields: Mapping[str, str]) -> int:
    """The seconds that a file is kept, by the form's fields of `expires_after`."""
    given = {
        name: fields[f"expires_after[{name}]"]
        for name in ("anchor", "seconds")
        if f"expires_after[{name}]" in fields
    }
    if not given:
        return MAX_AGE_S
    seconds = given.get("seconds", "")
    number = int(seconds) if seconds.isdecimal() and len(seconds) < 10 else seconds
    checked = EXPIRY.check({**given, "seconds": number}, "expires_after")
    return int(checked["seconds"])


def _ends(ids: Sequence[str]) -> tuple[str | None, str | None]:
    return (ids[0], ids[-1]) if ids else (None, None)


def _internal(error: Exception) -> MlccError:
    if isinstance(error, MlccError):
        return error
    return MlccError(
        f"the batch could not go on ({type(error).__name__}); the server's log says why",
        code="internal_error",
    )
