"""Compiles web/grammar, llguidance in wasm, with the installed Rust. Standard library only.

Rust is optional: without it the page is built too, and refuses grammars by name. The module is also
kept in the user's cache, by its sources and Rust's version: a second clone compiles nothing.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

CRATE = Path(__file__).resolve().parents[1] / "grammar"
ROOT = CRATE.parents[1]
sys.path.insert(0, str(ROOT / "runtime"))

from mlcc.util.file_cache import FileCache  # noqa: E402

BUILT = ROOT / "build" / "grammar"
CACHE = FileCache("grammar", 16 << 20)
TARGET = "wasm32-unknown-unknown"
RUSTUP = "install Rust (rustup), then type: python3 dev.py web"


def program(name: str) -> str | None:
    """The path of a program of Rust, on the path or in rustup's folder."""
    home = Path(os.environ.get("CARGO_HOME", Path.home() / ".cargo")) / "bin"
    return shutil.which(name) or shutil.which(name, path=str(home))


def missing() -> str:
    """Why it cannot be compiled; "" if it can. Adds the target if rustup is there."""
    cargo, rustc = program("cargo"), program("rustc")
    if not cargo or not rustc:
        return f"there is no Rust; {RUSTUP}"
    rustup = program("rustup")
    if not _has_target(rustc) and rustup:
        subprocess.run([rustup, "--quiet", "target", "add", TARGET], check=False, cwd=CRATE)
    if not _has_target(rustc):
        return f"this Rust lacks {TARGET}; type: rustup target add {TARGET}"
    return ""


def sources() -> list[Path]:
    """Its sources; dependencies are in the lock file."""
    names = ("Cargo.toml", "Cargo.lock", ".cargo/config.toml", "src/lib.rs")
    return [CRATE / name for name in names]


def build(out: Path) -> None:
    """Write the module, from the cache or by cargo. Ends this program if cargo fails."""
    out.parent.mkdir(parents=True, exist_ok=True)
    key = _key()
    if (module := CACHE.load(key)) is None:
        module = _compile()
        CACHE.store(key, module)
        CACHE.trim()
    out.write_bytes(module)


def _key() -> str:
    """A hash of the sources and of what compiles them."""
    digest = hashlib.sha256(_output("rustc", "-vV").encode() + _output("cargo", "-V").encode())
    for path in sources():
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def _output(name: str, *options: str) -> str:
    """The output of a program of Rust."""
    command = [str(program(name)), *options]
    return subprocess.run(command, check=True, cwd=CRATE, capture_output=True, text=True).stdout


def _compile() -> bytes:
    cargo = str(program("cargo"))
    command = [cargo, "build", "--release", "--locked", "--quiet"]
    command += ["--target", TARGET, "--target-dir", str(BUILT)]
    if subprocess.run(command, check=False, cwd=CRATE).returncode:
        sys.exit(f"web: `{' '.join(command)}` failed in {CRATE} (see above)")
    return (BUILT / TARGET / "release" / "mlcc_grammar.wasm").read_bytes()


def _has_target(rustc: str) -> bool:
    command = [rustc, "--print", "target-libdir", "--target", TARGET]
    result = subprocess.run(command, capture_output=True, text=True, check=False, cwd=CRATE)
    return result.returncode == 0 and any(Path(result.stdout.strip()).glob("libstd-*"))
