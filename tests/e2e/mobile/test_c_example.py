"""examples/c: built by its documented command, it chats with the demo model."""

from __future__ import annotations

import re
import shutil
import subprocess
import sysconfig
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.helpers.mobile.c_library import ROOT, Library

EXAMPLE = ROOT / "examples" / "c"


@pytest.mark.feature("c", "cpu", "runs")
def test_the_documented_command(
    c_library: Library, compiled_demo: Callable[[str, str], Path], tmp_path: Path
) -> None:
    found = re.search(r"^ +(cc .*)$", (EXAMPLE / "README.md").read_text(), re.M)
    assert found
    for folder in ("examples", "mobile"):
        (tmp_path / folder).symlink_to(ROOT / folder)
    shutil.copytree(c_library.folder, tmp_path / "build/mobile/c")
    subprocess.run(found[1], shell=True, check=True, cwd=tmp_path)
    program = [tmp_path / "build/mobile/c/chat", compiled_demo("f32", "cpu")]
    chat = subprocess.run(
        [*program, sysconfig.get_path("purelib")],
        input='What is 17 + 25?\nHello "there", \\ my friend!\n',
        capture_output=True,
        text=True,
        check=True,
    )
    assert not chat.stderr
    first, second = chat.stdout.split("you> ")[1:3]
    assert first == "17 + 25 = 42\n" and len(second) > 5


def test_an_example_stays_short() -> None:
    lines = (EXAMPLE / "chat.c").read_text().splitlines()
    assert len(lines) <= 90 and max(map(len, lines)) <= 100
