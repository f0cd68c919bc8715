"""Debian's packages for `dev.py`: whether this user may install them, and pip without root.

Standard library only. The machine's configuration decides where apt-get gets packages.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from tools.packages import Need

Say = Callable[[str], None]
APT = ("apt-get", "-qq", "-o", "Dpkg::Use-Pty=0", "-o", "DPkg::Lock::Timeout=300")
PIP = "python3-pip-whl"
"""Debian's package of pip as a wheel, with which its own python3-venv works."""


_ONE_AT_A_TIME = threading.Lock()
"""apt's lock of its lists is not waited for."""


def prefix() -> list[str] | None:
    """Prefix of a command that installs, [] for root; None = this user may not."""
    if shutil.which("apt-get") is None:
        return None
    if os.geteuid() == 0:
        return []
    sudo = ["sudo", "-n"]  # fails instead of asking for a password
    return sudo if shutil.which("sudo") and done(*sudo, "true") == "" else None


def install(needs: Sequence[Need], say: Say) -> bool:
    """Install the packages and report the reason. Returns whether that was allowed and worked."""
    before = prefix()
    if before is None:
        return False
    for need in needs:
        say(f"apt-get install {need.packages}: {need.purpose}")
    apt = [*before, "env", "DEBIAN_FRONTEND=noninteractive", *APT]
    words = [word for need in needs for word in need.packages.split()]
    with _ONE_AT_A_TIME:
        failure = done(*apt, "update")
        failure = failure or done(*apt, "install", "-y", "--no-install-recommends", *words)
    if failure:
        say(f"could not install them: {failure}")
    return not failure


def pip_wheel(folder: Path, say: Say) -> Path | None:
    """pip, downloaded and unpacked in `folder` without root; None on failure."""
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        return None
    say(f"taking pip out of Debian's package {PIP}")
    lists = folder / "lists"
    (lists / "partial").mkdir(parents=True)
    apt = [*APT, "-o", f"Dir::State::lists={lists}", "-o", f"Dir::Cache={folder}"]
    failure = done(*apt, "update") or done(*apt, "download", PIP, folder=folder)
    for package in folder.glob(f"{PIP}_*.deb"):
        failure = done("dpkg-deb", "-x", str(package), str(folder / PIP))
    if failure:
        say(f"could not: {failure}")
    return next((folder / PIP).rglob("pip-*.whl"), None)


def done(*command: str, folder: Path | None = None) -> str:
    """Run a command; "" if it succeeded, else its last line of output."""
    try:
        ran = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
    except OSError as error:
        return f"{command[0]}: {error.strerror}"
    lines = (ran.stderr or ran.stdout).strip().splitlines() or ["no message"]
    return lines[-1] if ran.returncode else ""
