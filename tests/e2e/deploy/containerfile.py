"""Builds a Containerfile's stage without a container engine: each instruction runs by chroot in a
root made by debootstrap.

It supports the instructions of our Containerfile and refuses any other. Not included are an
engine's layers, namespaces and limits. The machine's resolver, certificates and settings of apt and
pip are copied into the root, so that it has the same network access.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

MIRROR = "http://deb.debian.org/debian"
HANDED_ON = (
    "etc/resolv.conf",
    "etc/hosts",
    "etc/pip.conf",
    "etc/ssl/certs/ca-certificates.crt",
)
SUITE = re.compile(r"debian:(\w+)-slim")


def stage(file: Path, name: str) -> tuple[str, list[tuple[str, str]]]:
    """Debian's suite, and the instructions of a stage with those of the stages that it is from."""
    stages: dict[str, tuple[str, list[tuple[str, str]]]] = {}
    text = re.sub(r"^#.*\n", "", file.read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    current: list[tuple[str, str]] = []
    for line in filter(None, map(str.strip, text.splitlines())):
        instruction, _, rest = line.partition(" ")
        if instruction == "FROM":
            base, _, called = rest.partition(" AS ")
            suite, before = stages.get(base, (base, []))
            current = list(before)
            stages[called] = (suite, current)
        else:
            current.append((instruction, rest))
    suite, steps = stages[name]
    found = SUITE.fullmatch(suite)
    assert found, f"{suite} is not Debian's slim image"
    return found[1], steps


@dataclass
class Image:
    """A root folder, and the settings of its instructions."""

    root: Path
    context: Path
    """The build context, the source of `--mount=type=bind`."""
    environment: dict[str, str] = field(default_factory=dict)
    user: str = "root"
    folder: str = "/"
    entry: list[str] = field(default_factory=list)
    command: list[str] = field(default_factory=list)
    health: list[str] = field(default_factory=list)

    def fill(self, suite: str) -> None:
        """Debian's smallest system."""
        words = ["debootstrap", "--variant=minbase", suite, str(self.root), MIRROR]
        subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
        for name in HANDED_ON:
            if Path("/", name).exists():
                (self.root / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(Path("/", name), self.root / name)
        shutil.copyfile(Path("/etc/ssl/certs/ca-certificates.crt"), self.root / "machine.crt")
        subprocess.run(["mount", "-t", "proc", "proc", str(self.root / "proc")], check=True)
        self.environment = {
            key: value
            for key, value in os.environ.items()
            if key.startswith("PIP_") or key.lower().endswith("_proxy")
        }
        self.environment.pop("PIP_FIND_LINKS", None)
        self.environment |= {"PIP_CERT": "/machine.crt", "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}

    def leave(self) -> None:
        """Unmount all."""
        subprocess.run(["umount", str(self.root / "proc")], check=False)

    def obey(self, steps: Sequence[tuple[str, str]]) -> None:
        """The instructions, in order. AssertionError for one that is not known or that fails."""
        for instruction, rest in steps:
            method = getattr(self, f"_{instruction.lower()}", None)
            assert method is not None, f"{instruction} is not known here"
            method(rest)

    def words(self, words: Sequence[str], user: str | None = None) -> list[str]:
        """A command in the root as the machine has to call it."""
        inner = f'cd {self.folder} && exec "$@"'
        who = ["--userspec", user or self.user, "--groups", ""]
        return [
            "chroot",
            *who,
            str(self.root),
            *("/usr/bin/env", "-i", *(f"{k}={v}" for k, v in self.environment.items())),
            *("/bin/sh", "-c", inner, "sh", *words),
        ]

    def run(self, words: Sequence[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(self.words(words), capture_output=True, text=True, check=False)

    def _run(self, rest: str) -> None:
        mounts = re.findall(r"--mount=type=bind,source=(\S+),target=(\S+)", rest)
        for source, target in mounts:
            shutil.copytree(self.context / source, self.root / target.lstrip("/"))
        done = self.run(["/bin/sh", "-c", re.sub(r"--mount=\S+\s*", "", rest)])
        assert done.returncode == 0, f"{rest}\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
        for _, target in mounts:
            shutil.rmtree(self.root / target.lstrip("/"))

    def _env(self, rest: str) -> None:
        name, _, value = rest.partition("=")
        self.environment[name] = value

    def _user(self, rest: str) -> None:
        self.user = rest

    def _workdir(self, rest: str) -> None:
        self.folder = rest

    def _expose(self, rest: str) -> None:
        assert rest.isdecimal()

    def _entrypoint(self, rest: str) -> None:
        self.entry = json.loads(rest)

    def _cmd(self, rest: str) -> None:
        self.command = json.loads(rest)

    def _healthcheck(self, rest: str) -> None:
        self.health = json.loads(rest.partition("CMD ")[2])
