"""The states of a server's batches over restarts and days, with a clock of the test's own."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from mlcc.api.errors import BusyError, NotFoundError
from mlcc.batches.lines import InputBounds
from mlcc.batches.manager import BatchManager
from mlcc.batches.store import MAX_AGE_S, StoreBounds
from mlcc.errors import CapacityError, InvalidRequestError, MlccError
from mlcc.server.auth.owners import OWNER_TABLE, Owners
from mlcc.service.batches import Page
from mlcc.service.http.types import ApiRequest, ApiResponse, FormPart, json_response

DAY = 24 * 3600
URL = "/v1/completions"
BOUNDS = StoreBounds(file_bytes=10_000, bytes=20_000, files=3, batches=2)


async def answer(request: ApiRequest) -> ApiResponse:
    return json_response({"echo": json.loads(await request.read())["prompt"]})


class Stuck:
    """Answers some requests, and none after them."""

    def __init__(self, most: int) -> None:
        self.left = most

    async def __call__(self, request: ApiRequest) -> ApiResponse:
        if self.left <= 0:
            await asyncio.Event().wait()
        self.left -= 1
        return await answer(request)


def manager(
    folder: Path | None,
    work: Callable[[ApiRequest], Awaitable[ApiResponse]] = answer,
    now: Callable[[], float] = lambda: 1e9,
    lines: int = 100,
) -> BatchManager:
    return BatchManager(
        folder,
        lambda db: Owners(db, ["secret"]),
        OWNER_TABLE,
        work,
        lambda: 2,
        InputBounds(lines, 1000),
        BOUNDS,
        now=now,
    )


async def pieces(data: bytes) -> AsyncIterator[bytes]:
    for at in range(0, len(data), 7):
        yield data[at : at + 7]


async def form(data: bytes, **fields: str) -> AsyncIterator[FormPart]:
    yield FormPart("file", "in.jsonl", pieces(data))
    for name, value in {"purpose": "batch", **fields}.items():
        yield FormPart(name, None, pieces(value.encode()))


def text(count: int) -> bytes:
    lines = [{"custom_id": f"{n}", "url": URL, "body": {"prompt": f"p{n}"}} for n in range(count)]
    return "".join(json.dumps(line) + "\n" for line in lines).encode()


async def begin(made: BatchManager, tenant: str, count: int, **fields: Any) -> str:
    file = await made.upload(tenant, form(text(count)))
    asked = {"input_file_id": file["id"], "endpoint": URL, **fields}
    return (await made.create(tenant, asked))["id"]


async def ended(made: BatchManager, tenant: str, name: str) -> Any:
    while True:
        batch = await made.get(tenant, name)
        if batch["status"] in ("completed", "failed", "expired", "cancelled"):
            return batch
        await asyncio.sleep(0.01)


async def lines(made: BatchManager, tenant: str, file: str) -> list[Any]:
    whole = "".join([piece async for piece in await made.content(tenant, file)])
    return [json.loads(line) for line in whole.splitlines()]


def run(work: Awaitable[None]) -> None:
    async def bounded() -> None:
        await asyncio.wait_for(work, 60)

    asyncio.run(bounded())


def test_a_batch_expires_with_the_answers_that_it_has(tmp_path: Path) -> None:
    async def work() -> None:
        made = manager(tmp_path, Stuck(3))
        name = await begin(made, "key 1", 5)
        while (await made.get("key 1", name))["request_counts"]["completed"] < 3:
            await asyncio.sleep(0.01)
        await made.stop()
        later = manager(tmp_path, now=lambda: 1e9 + DAY)
        await later.start()
        batch = await ended(later, "key 1", name)
        assert batch["status"] == "expired" and batch["expired_at"] == 1e9 + DAY
        assert batch["request_counts"] == {"total": 5, "completed": 3, "failed": 2}
        found = await lines(later, "key 1", batch["output_file_id"])
        answered = [line["response"]["body"]["echo"] for line in found]
        missing = await lines(later, "key 1", batch["error_file_id"])
        left = [f"p{line['custom_id']}" for line in missing]
        assert sorted([*answered, *left]) == [f"p{n}" for n in range(5)]
        assert answered == sorted(answered) and len(answered) == 3
        assert {line["error"]["code"] for line in missing} == {"batch_expired"}
        await later.stop()

    run(work())


def test_a_restart_goes_on_for_the_same_key_wherever_it_stands(tmp_path: Path) -> None:
    """Keys of --api-key are numbered by their order, which may change."""

    async def work() -> None:
        made = manager(tmp_path, Stuck(1))
        name = await begin(made, "key 1", 4)
        while not (await made.get("key 1", name))["request_counts"]["completed"]:
            await asyncio.sleep(0.01)
        await made.stop()
        asked: list[str] = []

        async def noted(request: ApiRequest) -> ApiResponse:
            asked.append(request.tenant)
            return await answer(request)

        later = manager(tmp_path, noted)
        later._new_owners = lambda db: Owners(db, ["another", "secret"])
        await later.start()
        assert (await ended(later, "key 2", name))["status"] == "completed"
        assert asked == ["key 2"] * 3
        with pytest.raises(NotFoundError):
            await later.get("key 1", name)
        await later.stop()

    run(work())


def test_files_and_outputs_are_deleted_after_their_time(tmp_path: Path) -> None:
    async def work() -> None:
        now = [1e9]
        made = manager(tmp_path, now=lambda: now[0])
        short = {"expires_after[anchor]": "created_at", "expires_after[seconds]": "3600"}
        await made.upload("a", form(b"{}\n", **short))
        name = await begin(made, "a", 1, output_expires_after={"seconds": 7200})
        await ended(made, "a", name)
        for at, left in ((0, 3), (3600, 2), (7200, 1), (MAX_AGE_S, 0)):
            now[0] = 1e9 + at
            assert len((await made.files("a", Page(10)))["data"]) == left
            assert len([*(tmp_path / "files").iterdir()]) == left
        assert (await made.get("a", name))["status"] == "completed"
        await made.stop()

    run(work())


def test_what_a_key_may_have_is_bounded_and_another_is_not_touched(tmp_path: Path) -> None:
    async def work() -> None:
        made = manager(tmp_path, Stuck(0))
        for _ in range(2):
            await made.upload("a", form(b"x" * 9000))
        with pytest.raises(MlccError, match="more than 2000 bytes"):
            await made.upload("a", form(b"x" * 2001))
        await made.upload("a", form(b"x" * 2000))
        with pytest.raises(CapacityError, match="3 files already"):
            await made.upload("a", form(b"x"))
        for _ in range(2):
            await begin(made, "b", 2)
        with pytest.raises(CapacityError, match="2 batches have not ended"):
            await begin(made, "b", 1)
        await begin(made, "c", 1)
        await made.stop()

    run(work())


def test_uploads_at_once_are_bounded_and_a_full_disk_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work() -> None:
        made = manager(tmp_path)
        goes_on = asyncio.Event()

        async def slow() -> AsyncIterator[FormPart]:
            await goes_on.wait()
            async for part in form(b"{}\n"):
                yield part

        uploads = [asyncio.ensure_future(made.upload("a", slow())) for _ in range(4)]
        await asyncio.sleep(0.05)
        with pytest.raises(BusyError, match="4 files of this API key"):
            await made.upload("a", form(b"{}\n"))
        await made.upload("b", form(b"{}\n"))
        for upload in uploads[1:]:
            upload.cancel()
        goes_on.set()
        await uploads[0]
        await asyncio.wait(uploads)
        assert not made._uploads

        def full(path: Path) -> Any:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr("mlcc.batches.manager._new_file", full)
        with pytest.raises(CapacityError, match="No space left on device"):
            await made.upload("a", form(b"{}\n"))
        assert len([*(tmp_path / "files").iterdir()]) == 2
        await made.stop()

    run(work())


def test_a_batch_that_has_ended_is_not_cancelled(tmp_path: Path) -> None:
    async def work() -> None:
        made = manager(tmp_path)
        name = await begin(made, "a", 3)
        before = await ended(made, "a", name)
        with pytest.raises(InvalidRequestError, match="is completed"):
            await made.cancel("a", name)
        with pytest.raises(NotFoundError):
            await made.cancel("b", name)
        assert await made.get("a", name) == before
        left = await made._run(made._store.open_batches)
        assert left == [], "it is not begun again by the next start"
        await made.stop()

    run(work())


def test_too_many_lines_are_refused(tmp_path: Path) -> None:
    async def work() -> None:
        made = manager(tmp_path, lines=3)
        batch = await ended(made, "a", await begin(made, "a", 4))
        assert batch["status"] == "failed"
        assert batch["errors"]["data"][0]["code"] == "too_many_lines"
        await made.stop()

    run(work())


def test_a_folder_of_something_else_is_refused(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "batches.sqlite") as db:
        db.execute("CREATE TABLE other (x)")
    (tmp_path / "batches.sqlite").chmod(0o600)

    async def work() -> None:
        with pytest.raises(MlccError, match=r"another program's.*give --files another folder"):
            await manager(tmp_path).start()

    run(work())
