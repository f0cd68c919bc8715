"""Answers stored in a file or in memory: found again, separated by tenant, linked to the turn
before, bounded, and in a file that its owner alone may read."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
from collections.abc import Callable, Coroutine
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from mlcc.errors import MlccError
from mlcc.server.auth.owners import owner_name
from mlcc.server.response_store import MAX_AGE_S, SqliteResponseStore
from mlcc.service.response_store import store as stores
from mlcc.service.response_store.store import Chain, MemoryResponseStore, ResponseStore, Share, Turn

BOTH: dict[str, Callable[[Path, Share], ResponseStore]] = {
    "memory": lambda folder, share: MemoryResponseStore(share),
    "file": lambda folder, share: SqliteResponseStore(folder / "kept", share=share),
}
SMALL = Share(1000, 3)


def turn(text: str = "t", previous: str | None = None) -> Turn:
    return Turn("{}", text, previous)


def run(work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(work)


@pytest.fixture(params=BOTH)
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[Share], ResponseStore]:
    return lambda share: BOTH[request.param](tmp_path, share)


def test_what_is_kept_is_found_by_its_tenant_only(make: Callable[[Share], ResponseStore]) -> None:
    async def work() -> None:
        kept, two = make(Share()), turn("two \N{SNOWMAN}")
        await kept.put("a", "x", turn("one \N{SNOWMAN}"))
        await kept.put("a", "x", two)
        assert await kept.get("a", "x") == two
        assert await kept.get("b", "x") is None
        assert await kept.chain("b", "x") == Chain([], 0, False)
        assert await kept.items("b", "x") is None
        assert not await kept.delete("b", "x")
        assert await kept.delete("a", "x")
        assert not await kept.delete("a", "x")
        assert await kept.get("a", "x") is None

    run(work())


def test_the_oldest_of_the_same_tenant_make_room(make: Callable[[Share], ResponseStore]) -> None:
    async def work() -> None:
        kept = make(SMALL)
        await kept.put("b", "x", turn("theirs"))
        for name in "vwxyz":
            await kept.put("a", name, turn(name))
        found = [await kept.get("a", name) for name in "vwxyz"]
        assert found == [None, None, turn("x"), turn("y"), turn("z")]
        assert await kept.get("b", "x") == turn("theirs")

    run(work())


def test_bytes_are_bounded_and_one_that_is_too_large_pushes_out_none(
    make: Callable[[Share], ResponseStore],
) -> None:
    """Bytes before compression: these are all one letter."""

    async def work() -> None:
        kept = make(SMALL)
        await kept.put("a", "x", turn("x" * 600))
        await kept.put("a", "y", turn("y" * 500))
        assert await kept.get("a", "x") is None and await kept.get("a", "y")
        await kept.put("a", "z", turn("z" * 999))
        assert await kept.get("a", "z") is None and await kept.get("a", "y")

    run(work())


def test_one_turn_is_bounded(
    make: Callable[[Share], ResponseStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (stores, "mlcc.server.response_store"):
        monkeypatch.setattr(*_bound(module), 100)

    async def work() -> None:
        kept = make(Share())
        await kept.put("a", "x", turn("x" * 98))
        await kept.put("a", "y", turn("y" * 99))
        assert await kept.get("a", "x") and await kept.get("a", "y") is None

    run(work())


def _bound(module: Any) -> tuple[Any, str]:
    import importlib

    found = importlib.import_module(module) if isinstance(module, str) else module
    return found, "MOST_TURN_BYTES"


def test_a_turn_is_stored_once_and_its_conversation_is_read_through_links(
    make: Callable[[Share], ResponseStore],
) -> None:
    async def work() -> None:
        kept = make(Share())
        await kept.put("a", "1", turn("one"))
        await kept.put("a", "2", turn("two2", "1"))
        await kept.put("a", "3", turn("three", "2"))
        await kept.put("a", "b", turn("branch", "2"))
        assert await kept.chain("a", "3") == Chain(["1", "2", "3"], 12, True)
        assert await kept.chain("a", "b") == Chain(["1", "2", "b"], 13, True)
        assert await kept.items("a", "2") == "two2"
        await kept.put("a", "lost", turn("x", "never stored"))
        assert await kept.chain("a", "lost") == Chain(["lost"], 1, False)

    run(work())


def test_a_deleted_turn_stays_hidden_while_another_continues_it(
    make: Callable[[Share], ResponseStore],
) -> None:
    async def work() -> None:
        kept = make(Share())
        for name, previous in ("1", None), ("2", "1"), ("3", "2"):
            await kept.put("a", name, turn(name, previous))
        assert await kept.delete("a", "1") and await kept.delete("a", "2")
        assert await kept.get("a", "2") is None and not await kept.delete("a", "2")
        assert (await kept.chain("a", "2")).names == []
        assert await kept.chain("a", "3") == Chain(["1", "2", "3"], 3, True)
        assert await kept.delete("a", "3")
        assert [await kept.items("a", name) for name in "123"] == [None] * 3, "nothing is left"

    run(work())


def test_a_conversation_in_use_is_not_evicted(make: Callable[[Share], ResponseStore]) -> None:
    async def work() -> None:
        kept = make(Share(10_000, 4))
        await kept.put("a", "1", turn("1"))
        await kept.put("a", "2", turn("2", "1"))
        for n in range(9):
            assert (await kept.chain("a", "2")).complete
            await kept.put("a", f"other {n}", turn())
        assert await kept.get("a", "other 6") is None and await kept.get("a", "other 7")

    run(work())


def test_a_file_outlives_the_process_and_knows_keys_not_their_numbers(tmp_path: Path) -> None:
    path = tmp_path / "kept"
    with closing(SqliteResponseStore(path, ["first", "second"])) as kept:
        run(kept.put("key 1", "x", turn("of the first")))
        run(kept.put("named", "x", turn("of a name")))
        assert all(file.stat().st_mode & 0o077 == 0 for file in tmp_path.iterdir())
    with closing(SqliteResponseStore(path, ["second", "first"])) as kept:
        assert run(kept.get("key 1", "x")) is None
        assert run(kept.get("key 2", "x")) == turn("of the first")
        assert run(kept.get("named", "x")) == turn("of a name")
    assert path.stat().st_mode & 0o077 == 0
    assert b"first" not in path.read_bytes()


def test_a_file_forgets_what_is_old(tmp_path: Path) -> None:
    now = [0.0]
    with closing(SqliteResponseStore(tmp_path / "kept", now=lambda: now[0])) as kept:
        run(kept.put("a", "w", turn()))
        run(kept.put("a", "x", turn("old", "w")))
        now[0] = MAX_AGE_S
        assert run(kept.get("a", "x")) is not None
        now[0] = MAX_AGE_S + 1
        assert run(kept.get("a", "x")) is None
        assert run(kept.chain("a", "x")).names == []
        run(kept.put("a", "y", turn("new")))
        rows = sqlite3.connect(tmp_path / "kept").execute("SELECT name FROM turns").fetchall()
        assert rows == [("y",)]


def test_what_the_file_holds_is_bounded_when_it_is_read(tmp_path: Path) -> None:
    """Another program may have written a row of few bytes that decompress to any size."""
    import zlib

    path = tmp_path / "kept"
    with closing(SqliteResponseStore(path)) as kept:
        run(kept.put("a", "x", turn()))
        with sqlite3.connect(path) as db:
            bomb = zlib.compress(b" " * (stores.MOST_TURN_BYTES + 1))
            db.execute("UPDATE turns SET items = ?", (bomb,))
        db.close()
        with pytest.raises(MlccError, match="has more than 8388608 bytes"):
            run(kept.get("a", "x"))


@pytest.mark.parametrize("suffix", ["", "-journal", "-wal", "-shm"])
@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("readable", "chmod 600 "),
        ("link", "is a link"),
        ("dangling", "is a link"),
        ("pipe", "no regular file"),
    ],
)
def test_a_file_that_others_may_read_or_replace_is_refused(
    tmp_path: Path, kind: str, words: str, suffix: str
) -> None:
    with closing(SqliteResponseStore(tmp_path / "real")) as kept:
        run(kept.put("a", "x", turn()))
    path = tmp_path / "kept"
    path.write_bytes((tmp_path / "real").read_bytes())
    path.chmod(0o600)
    file = tmp_path / f"kept{suffix}"
    file.unlink(missing_ok=True)
    if kind == "readable":
        file.write_bytes((tmp_path / "real").read_bytes() if not suffix else b"")
        file.chmod(0o640)
    elif kind == "pipe":
        os.mkfifo(file, 0o600)
    else:
        file.symlink_to(tmp_path / ("real" if kind == "link" else "missing"))
    with pytest.raises(MlccError, match=words):
        SqliteResponseStore(path)
    assert not (tmp_path / "missing").exists()


def test_a_file_of_an_earlier_version_is_refused_with_what_to_type(tmp_path: Path) -> None:
    path = tmp_path / "kept"
    path.touch(0o600)
    with sqlite3.connect(path) as db:
        db.execute(f"PRAGMA application_id = {0x6D6C6363}")
        db.execute("PRAGMA user_version = 1")
        db.execute("CREATE TABLE answers (tenant, name, at, text)")
    db.close()
    before = path.read_bytes()
    with pytest.raises(MlccError, match=f"its format is 1, .* `mv {path} {path}.1`"):
        SqliteResponseStore(path)
    assert path.read_bytes() == before


def test_a_closed_store_leaves_one_file_of_this_format_and_no_thread(tmp_path: Path) -> None:
    threads = {*threading.enumerate()}
    with closing(SqliteResponseStore(tmp_path / "kept")) as kept:
        run(kept.put("a", "x", turn()))
        assert {*threading.enumerate()} > threads
    assert {*threading.enumerate()} == threads
    assert [file.name for file in tmp_path.iterdir()] == ["kept"], "SQLite's log is written back"
    with closing(sqlite3.connect(tmp_path / "kept")) as db:
        found = [db.execute(f"PRAGMA {name}").fetchone()[0] for name in (
            "application_id", "user_version", "journal_mode")]  # fmt: skip
    assert found == [int.from_bytes(b"mlcc", "big"), 2, "wal"]
    assert MAX_AGE_S == 30 * 24 * 60 * 60


@pytest.mark.parametrize("content", ["text", "other"])
def test_another_file_is_refused_and_left_alone(tmp_path: Path, content: str) -> None:
    path = tmp_path / "kept"
    if content == "text":
        path.touch(0o600)
        path.write_text("not a database, but longer than the header of one " * 10)
    else:
        path.touch(0o600)
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


def test_a_file_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(SqliteResponseStore(tmp_path / "kept")):
        pass
    own = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: own + 1)
    with pytest.raises(MlccError, match="belongs to another user"):
        SqliteResponseStore(tmp_path / "kept")


def test_a_chain_that_another_program_has_closed_to_a_ring_ends(tmp_path: Path) -> None:
    with closing(SqliteResponseStore(tmp_path / "kept", share=Share(10_000, 3))) as kept:
        run(kept.put("a", "1", turn("x", "2")))
        run(kept.put("a", "2", turn("y", "1")))
        assert len(run(kept.chain("a", "2")).names) == 3


def test_the_hash_of_a_key_stays_the_same_between_versions() -> None:
    """A change would lose what is stored."""
    name = owner_name("k", b"0123456789abcdef")
    assert name == "key 25a1c0345b3213b29e72f352ac68ca2f53a0b4a303362472"
