"""Links libraries for Linux and Android, for any CPU, without files of these systems.

System libraries are stubs with a name only: a library records the names, and the loader resolves
functions by name. So it requires no version of glibc, whatever system linked it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from mlcc_targets.linking.linker import run_zig
from mlcc_targets.linking.static import LINKED_PARTS, archive, compile_part
from mlcc_targets.target import TargetError

LINUX = ("libm.so.6", "libc.so.6")
_RAISE = Path(__file__).with_name("raise_parts.c")
_EMULATIONS = {"x86_64": "elf_x86_64", "aarch64": "aarch64linux"}
# A model's symbols are bound to itself (-Bsymbolic): all models share some names.
_OPTIONS = ["-z", "noexecstack", "-z", "relro", "-z", "now", "-Bsymbolic", "--strip-all"]
_OPTIONS += ["--no-as-needed"]


def link_model(
    objects: Sequence[Path],
    library: Path,
    arch: str,
    needed: Sequence[str] = LINUX,
    options: Sequence[str] = (),
) -> None:
    """Link TVM's objects into a library that any TVM runtime can load, and that names none.
    Raises TargetError."""
    with tempfile.TemporaryDirectory() as folder:
        link_elf([*objects, _compiled(_RAISE, folder, arch)], library, arch, needed, options)


def archive_model(objects: Sequence[Path], library: Path, arch: str) -> None:
    """Collect objects in a static library for programs that also link libmlcc_executor, and write
    its header. Raises TargetError."""
    with tempfile.TemporaryDirectory() as folder:
        archive([*objects, _compiled(LINKED_PARTS, folder, arch)], library, "gnu")


def _compiled(source: Path, folder: str, arch: str) -> Path:
    made = Path(folder) / f"{source.stem}.o"
    run_zig(compile_part(source, made, f"{arch}-linux"), made)
    return made


def link_elf(
    objects: Sequence[Path],
    library: Path,
    arch: str,
    needed: Sequence[str] = LINUX,
    options: Sequence[str] = (),
) -> None:
    """Link objects of `arch` into a library that depends on `needed`. Raises TargetError."""
    if arch not in _EMULATIONS:
        raise TargetError(f"no ELF libraries for '{arch}'; use one of: {', '.join(_EMULATIONS)}")
    shared = ["ld.lld", "-m", _EMULATIONS[arch], "-shared", "--build-id=none", "--hash-style=gnu"]
    with tempfile.TemporaryDirectory() as folder:
        stubs = [_stub(shared, Path(folder) / name) for name in needed]
        inputs = [str(path) for path in (*objects, *stubs)]
        command = [*shared, *_OPTIONS, *options, "-soname", library.name, "-o", str(library)]
        run_zig([*command, *inputs], library)


def _stub(shared: Sequence[str], library: Path) -> Path:
    nothing = library.with_suffix(".bin")  # the linker needs an input of any kind
    nothing.write_bytes(b"\0")
    command = [*shared, "-soname", library.name, "-o", str(library), "-b", "binary", str(nothing)]
    run_zig(command, library)
    return library
