"""Which device a command takes, and what it says before any work where there is none."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from cli.tiny_checkpoint import write_checkpoint


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: Any) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("tiny") / "model")


def mlcc(*arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mlcc", *map(str, arguments)]
    env = {**os.environ, **environment}
    return subprocess.run(command, capture_output=True, text=True, env=env, check=False)


NO_DRIVER = {"VK_ICD_FILENAMES": "/nowhere.json", "VK_DRIVER_FILES": "/nowhere.json"}


@pytest.mark.parametrize(
    ("arguments", "environment", "gist"),
    [
        pytest.param(
            ["--target", "vulkan"],
            NO_DRIVER,
            "no Vulkan driver was found; install one",
            marks=pytest.mark.usefixtures("plugin"),
        ),
        pytest.param(
            ["--target", "vulkan", "--device", "9"],
            {},
            "there is no device 9; `mlcc targets`",
            marks=pytest.mark.usefixtures("vulkan"),
        ),
        (["--target", "metal"], {}, "runs on a Mac"),
        (["--target", "android"], {}, "runs in an Android app"),
        (["--target", "cpu", "--device", "0"], {}, "runs on the CPU; leave out --device"),
    ],
)
def test_a_checkpoint_is_not_compiled_for_a_device_that_is_not_here(
    checkpoint: Path, tmp_path: Path, arguments: list[str], environment: dict[str, str], gist: str
) -> None:
    cache = {"XDG_CACHE_HOME": str(tmp_path)}
    done = mlcc("run", checkpoint, "hello", *arguments, **environment, **cache)
    assert done.returncode == 2
    assert gist in done.stderr.splitlines()[-1]
    assert "compiling" not in done.stderr and not list(tmp_path.iterdir())


def test_targets_lists_devices(vulkan: None) -> None:
    rows = json.loads(mlcc("targets", "--json").stdout)
    assert rows["vulkan"]["devices"][0].startswith("0: ") and rows["vulkan"]["run"] == ""
    rows = json.loads(mlcc("targets", "--json", **NO_DRIVER).stdout)
    assert rows["vulkan"]["devices"] == [] and "apt install" in rows["vulkan"]["run"]
