"""Links an app for iOS by zig, without Apple's SDK.

Each system library is a stub that names what the app needs of it. So a link shows that the objects
fit together, not that a phone has these names or loads the app.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

from mlcc_targets.linking.linker import run_zig, zig
from tests.targets.small_library import inspect

TARGET = "aarch64-ios.15.0"
_FLAGS = ("-fno-sanitize=all", "-g0", "-fno-stack-protector")
_KEYS = ("include", "sys_include", "cc", "crt", "msvc_lib", "kernel32_lib", "darwin_sdk")
_STUB = """--- !tapi-tbd
tbd-version: 4
targets: [ arm64-ios ]
install-name: {path}
exports:
  - targets: [ arm64-ios ]
    symbols: [ {names} ]
...
"""
LIBRARIES = {  # stub -> what it stands for, and the pattern of its names
    "libPython": ("@rpath/Python.framework/Python", r"__?Py[A-Z_]"),
    "libc++": ("/usr/lib/libc++.1.dylib", r"__Z|___cxa|___gxx"),
    "libSystem": ("/usr/lib/libSystem.B.dylib", ""),
}


def names(path: Path, kind: str) -> set[str]:
    """Names that an object or a library defines or leaves undefined."""
    listed = inspect("llvm-nm", "-g", f"--{kind}-only", "--format=just-symbols", path).split()
    return {name for name in listed if not name.endswith(":")}


def compile_c(source: Path, folders: Iterable[Path]) -> Path:
    """An object for iOS."""
    made = source.with_suffix(".o")
    darwin = Path(zig()).parent / "lib" / "libc" / "include" / "any-darwin-any"
    include = [f"-I{folder}" for folder in folders]
    words = ["cc", "-target", TARGET, *_FLAGS, "-isystem", str(darwin), *include]
    run_zig([*words, "-c", str(source), "-o", str(made)], made)
    return made


def link(inputs: Sequence[Path], folder: Path) -> Path:
    """The app of objects and archives. Raises CalledProcessError with the linker's words."""
    left = set().union(*(names(path, "undefined") for path in inputs))
    left -= set().union(*(names(path, "defined") for path in inputs))
    for name, (path, pattern) in LIBRARIES.items():
        its = {each for each in left if re.match(pattern, each)}
        left -= its
        more = {"dyld_stub_binder"} if name == "libSystem" else set()
        text = _STUB.format(path=path, names=", ".join(f"'{each}'" for each in sorted(its | more)))
        (folder / f"{name}.tbd").write_text(text, encoding="utf-8")
    (folder / "SDKSettings.json").write_text('{"Version": "15.0"}', encoding="utf-8")
    places = folder / "places.txt"
    places.write_text("".join(f"{key}_dir={folder}\n" for key in _KEYS), encoding="utf-8")
    app = folder / "app"
    command = [zig(), "build-exe", "-target", TARGET, "--name", "app", "-fstrip"]
    command += ["-fno-compiler-rt", "-fno-ubsan-rt", "--libc", str(places), f"-femit-bin={app}"]
    stubs = [folder / "libc++.tbd", folder / "libPython.tbd"]
    subprocess.run([*command, *map(str, (*inputs, *stubs))], check=True)
    return app
