"""The device that a command chooses, and the error if there is none, before any work."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.runtime.commands.tiny_checkpoint import write_checkpoint


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: Any) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("tiny") / "model")


def mlcc(*arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mlcc", *map(str, arguments)]
    env = {**os.environ, **environment}
    return subprocess.run(command, capture_output=True, text=True, env=env, check=False)


NO_DRIVER = {"VK_ICD_FILENAMES": "/nowhere.json", "VK_DRIVER_FILES": "/nowhere.json"}


def refused_at_once(checkpoint: Path, cache: Path, *arguments: str, **environment: str) -> str:
    """The last line that `mlcc run` says, which compiles nothing."""
    environment |= {"XDG_CACHE_HOME": str(cache)}
    done = mlcc("run", checkpoint, "hello", *arguments, **environment)
    assert done.returncode == 2
    assert "compiling" not in done.stderr and not list(cache.iterdir())
    return done.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    ("arguments", "gist"),
    [
        (["--target", "metal"], "runs on a Mac"),
        (["--target", "android"], "runs in an Android app"),
        (["--target", "cpu", "--device", "0"], "runs on the CPU; leave out --device"),
    ],
)
def test_a_checkpoint_is_not_compiled_for_a_device_that_is_not_here(
    checkpoint: Path, tmp_path: Path, arguments: list[str], gist: str
) -> None:
    assert gist in refused_at_once(checkpoint, tmp_path, *arguments)


def test_nor_without_a_driver(plugin: None, checkpoint: Path, tmp_path: Path) -> None:
    message = refused_at_once(checkpoint, tmp_path, "--target", "vulkan", **NO_DRIVER)
    assert "no Vulkan driver was found; install one" in message


def test_nor_for_a_number_that_no_device_has(
    vulkan: None, checkpoint: Path, tmp_path: Path
) -> None:
    message = refused_at_once(checkpoint, tmp_path, "--target", "vulkan", "--device", "9")
    assert "there is no device 9; `mlcc targets`" in message


def test_targets_lists_devices(vulkan: None) -> None:
    rows = json.loads(mlcc("targets", "--json").stdout)
    assert rows["vulkan"]["devices"][0].startswith("0: ") and rows["vulkan"]["run"] == ""
    rows = json.loads(mlcc("targets", "--json", **NO_DRIVER).stdout)
    assert rows["vulkan"]["devices"] == [] and "apt install" in rows["vulkan"]["run"]
