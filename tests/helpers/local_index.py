"""A folder with a wheel of this clone and an index for pip, as `dev.py release` writes them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tools import package_managers

ROOT = Path(__file__).parents[2]


def copy_of_the_clone(tree: Path) -> Path:
    """The tracked files, as they are, in a new folder."""
    tree.mkdir()
    files = subprocess.check_output(["git", "ls-files", "-z"], cwd=ROOT)
    pack = ["tar", "--null", "-T", "-", "-c", "--ignore-failed-read"]
    packed = subprocess.run(pack, cwd=ROOT, input=files, capture_output=True, check=True)
    subprocess.run(["tar", "-x", "-C", str(tree)], input=packed.stdout, check=True)
    return tree


def make(folder: Path, environment: Mapping[str, str]) -> Path:
    """Build the wheel from a copy of the tracked files, and write the index beside it; returns the
    wheel. environment: with `hatch_build.py`'s variables."""
    tree, release = copy_of_the_clone(folder / "tree"), folder / "release"
    pip = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation"]
    subprocess.run([*pip, "-w", release, tree], env=dict(environment), check=True)
    package_managers.write_index(release, [path.name for path in release.glob("*.whl")])
    (made,) = release.glob("mlcc-*.whl")
    return made
