"""Debian's arm64 Python and JVM in a folder, for qemu: downloaded once and cached."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.helpers import needs
from tools.debian import APT, done

PACKAGES = (
    "libpython3.11", "libpython3.11-minimal", "libpython3.11-stdlib", "libpython3.11-dev",
    "python3.11-minimal", "libffi8", "zlib1g", "libexpat1", "libstdc++6", "libgcc-s1", "libc6",
    "libssl3", "libsqlite3-0", "openjdk-17-jre-headless",
)  # fmt: skip
"""Packages of Debian 12; its Python has the version that compiled the tested bytecode."""


def arm64_python() -> Path:
    """A folder that is its root. The test skips, or fails, where it cannot be had."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    root = base / "mlcc" / "tests" / "arm64-python3.11-sqlite-java17"
    if (root / "usr/bin/python3.11").exists():
        return root
    if sys.version_info[:2] != (3, 11) or shutil.which("apt-get") is None:
        needs.absent("needs Debian 12's arm64 packages of Python 3.11")
    partial = root.with_suffix(".partial")
    shutil.rmtree(partial, ignore_errors=True)
    (partial / "lists" / "partial").mkdir(parents=True)
    apt = [*APT, "-o", "APT::Architecture=arm64", "-o", "APT::Architectures::=arm64"]
    apt += ["-o", f"Dir::State::lists={partial}/lists", "-o", f"Dir::Cache={partial}"]
    apt += ["-o", "Dir::State::status=/dev/null"]
    failure = done(*apt, "update") or done(*apt, "download", *PACKAGES, folder=partial)
    lists = partial / "root/var/lib/dpkg/info"
    lists.mkdir(parents=True)
    for package in partial.glob("*.deb"):
        failure = failure or done("dpkg-deb", "-x", str(package), str(partial / "root"))
        words = ["dpkg-deb", "--contents", str(package)]
        listing = subprocess.run(words, capture_output=True, text=True, check=False).stdout
        names = [line.partition(" ./")[2].partition(" -> ")[0] for line in listing.splitlines()]
        (lists / f"{package.name.partition('_')[0]}.list").write_text(
            "".join(f"/{name}\n" for name in names)
        )
    if failure:
        needs.absent(f"needs Debian's arm64 Python, which could not be fetched: {failure}")
    (partial / "root").rename(root)
    shutil.rmtree(partial)
    return root
