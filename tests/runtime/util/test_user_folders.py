"""The user's folders on each system."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlcc.util import user_folders

HOME = Path("/home/user")
ALL = (user_folders.cache, user_folders.state, user_folders.data)


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(user_folders.Path, "home", lambda: HOME)
    for name in ("XDG_CACHE_HOME", "XDG_STATE_HOME", "XDG_DATA_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    "system, folders",
    [
        ("linux", (".cache", ".local/state", ".local/share")),
        ("darwin", ("Library/Caches", *("Library/Application Support",) * 2)),
        ("win32", ("AppData/Local",) * 3),
    ],
)
def test_each_system_has_its_own(
    system: str, folders: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(user_folders.sys, "platform", system)
    assert [folder() for folder in ALL] == [HOME / name / "mlcc" for name in folders]
    monkeypatch.setenv("XDG_CACHE_HOME", "/disk")
    assert user_folders.cache() == Path("/disk/mlcc")
    assert user_folders.state() == HOME / folders[1] / "mlcc"


def test_windows_names_its_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(user_folders.sys, "platform", "win32")
    monkeypatch.setenv("LOCALAPPDATA", "/profile/Local")
    assert {folder() for folder in ALL} == {Path("/profile/Local/mlcc")}
