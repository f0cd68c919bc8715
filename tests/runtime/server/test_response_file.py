"""Answers stored in a file: found again, separated by tenant, bounded, and readable by its owner
only."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Coroutine
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from mlcc.errors import MlccError
from mlcc.server.response_store import MAX_AGE_S, SqliteResponseStore
from mlcc.service.response_store.store import MemoryResponseStore, ResponseStore, Share

BOTH: dict[str, Callable[[Path, Share], ResponseStore]] = {
    "memory": lambda folder, share: MemoryResponseStore(share),
    "file": lambda folder, share: SqliteResponseStore(folder / "kept", share=share),
}
SMALL = Share(1000, 3)


def run(work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(work)


@pytest.fixture(params=BOTH)
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[Share], ResponseStore]:
    return lambda share: BOTH[request.param](tmp_path, share)


def test_what_is_kept_is_found_by_its_tenant_only(make: Callable[[Share], ResponseStore]) -> None:
    async def work() -> None:
        kept = make(Share())
        await kept.put("a", "x", "one \N{SNOWMAN}")
        await kept.put("a", "x", "two \N{SNOWMAN}")
        assert await kept.get("a", "x") == "two \N{SNOWMAN}"
        assert await kept.get("b", "x") is None
        assert not await kept.delete("b", "x")
        assert await kept.delete("a", "x")
        assert not await kept.delete("a", "x")
        assert await kept.get("a", "x") is None

    run(work())


def test_the_oldest_of_the_same_tenant_make_room(make: Callable[[Share], ResponseStore]) -> None:
    async def work() -> None:
        kept = make(SMALL)
        await kept.put("b", "x", "theirs")
        for name in "vwxyz":
            await kept.put("a", name, name)
        found = [await kept.get("a", name) for name in "vwxyz"]
        assert found == [None, None, "x", "y", "z"]
        assert await kept.get("b", "x") == "theirs"

    run(work())


def test_bytes_are_bounded_and_one_that_is_too_large_pushes_out_none() -> None:
    async def work() -> None:
        kept = MemoryResponseStore(SMALL)
        await kept.put("a", "x", "x" * 600)
        await kept.put("a", "y", "y" * 500)
        assert await kept.get("a", "x") is None and await kept.get("a", "y")
        await kept.put("a", "z", "z" * 1001)
        assert await kept.get("a", "z") is None and await kept.get("a", "y")

    run(work())


def test_a_file_outlives_the_process_and_knows_keys_not_their_numbers(tmp_path: Path) -> None:
    path = tmp_path / "kept"
    with closing(SqliteResponseStore(path, ["first", "second"])) as kept:
        run(kept.put("key 1", "x", "of the first"))
        run(kept.put("named", "x", "of a name"))
    with closing(SqliteResponseStore(path, ["second", "first"])) as kept:
        assert run(kept.get("key 1", "x")) is None
        assert run(kept.get("key 2", "x")) == "of the first"
        assert run(kept.get("named", "x")) == "of a name"
    assert path.stat().st_mode & 0o077 == 0
    assert b"first" not in path.read_bytes()


def test_a_file_forgets_what_is_old(tmp_path: Path) -> None:
    now = [0.0]
    with closing(SqliteResponseStore(tmp_path / "kept", now=lambda: now[0])) as kept:
        run(kept.put("a", "x", "old"))
        now[0] = MAX_AGE_S + 1
        assert run(kept.get("a", "x")) is None
        run(kept.put("a", "y", "new"))
        rows = sqlite3.connect(tmp_path / "kept").execute("SELECT name FROM answers").fetchall()
        assert rows == [("y",)]


def test_bytes_of_a_file_are_bounded(tmp_path: Path) -> None:
    with closing(SqliteResponseStore(tmp_path / "kept", share=Share(150, 99))) as kept:
        for name in "abcdefgh":
            run(kept.put("t", name, "".join(chr(33 + (i * i + ord(name)) % 90) for i in range(60))))
        found = [name for name in "abcdefgh" if run(kept.get("t", name))]
        assert found and found == list("abcdefgh")[-len(found) :] and len(found) < 8


@pytest.mark.parametrize("content", ["text", "other"])
def test_another_file_is_refused_and_left_alone(tmp_path: Path, content: str) -> None:
    path = tmp_path / "kept"
    if content == "text":
        path.write_text("not a database, but longer than the header of one " * 10)
    else:
        with sqlite3.connect(path) as db:
            db.execute("CREATE TABLE mine (x)")
        db.close()
    before = path.read_bytes()
    with pytest.raises(MlccError, match="--store another file"):
        SqliteResponseStore(path)
    assert path.read_bytes() == before


def test_a_missing_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(MlccError, match="--store another file"):
        SqliteResponseStore(tmp_path / "missing" / "kept")
