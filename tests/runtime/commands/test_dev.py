"""`dev.py test` on a bare machine: the packages it installs, its output where it may not, and the
tests that then lack something. apt-get and sudo are scripts here that record their arguments."""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
from contextlib import nullcontext
from dataclasses import replace
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import pytest

from tools import debian, packages

ROOT = Path(__file__).parents[3]
ABSENT = packages.Need("frobnicator", "frob libfrob1", "frobs", lambda: False)
HERE = replace(ABSENT, name="python", packages="python3", is_here=lambda: True)

MADE = tuple(replace(need, is_here=lambda: False) for need in packages.NEEDS if need.command)


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Puts a program on an else empty path: (name, exit code); its arguments are in `calls`."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    (tmp_path / "calls").write_text("")

    def add(name: str, code: int = 0) -> None:
        script = (
            f'#!/bin/sh\necho {name} "$@" >> {tmp_path}/calls\necho E: no {name} >&2\nexit {code}\n'
        )
        (folder / name).write_text(script)
        (folder / name).chmod(0o755)

    return add


@pytest.fixture
def dev(monkeypatch: pytest.MonkeyPatch) -> Any:
    """dev.py as a module whose commands are noted in `ran` instead of run."""
    spec = importlib.util.spec_from_file_location("mlcc_dev", ROOT / "dev.py")
    assert spec and spec.loader
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.ran = []
    monkeypatch.setattr(module, "run", lambda *words: module.ran.append(words) or 0)
    monkeypatch.setattr(module, "web", lambda *words: 0)
    monkeypatch.setattr(module, "install", lambda lock: None)
    monkeypatch.setattr(module, "build", lambda lock: None)
    monkeypatch.setattr(module, "reading_tests", nullcontext)
    monkeypatch.setattr(module, "forward_signals", lambda: None)  # this process is not dev.py's
    monkeypatch.setattr(packages, "NEEDS", (HERE, ABSENT))
    monkeypatch.delenv("MLCC_ALL_INSTALLED", raising=False)
    return module


def test_ctrl_c_ends_without_a_traceback(dev: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(lock: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(dev, "install", interrupted)
    monkeypatch.setattr(sys, "argv", ["dev.py", "demo"])
    assert dev.main() == 130


@pytest.mark.parametrize("paths", [(), ("tests/runtime/util",)])
def test_style_and_types_come_before_the_tests(
    dev: Any, monkeypatch: pytest.MonkeyPatch, paths: tuple[str, ...]
) -> None:
    order: list[str] = []
    monkeypatch.setattr(dev, "run", lambda *words: order.append(words[1]) or 0)
    monkeypatch.setattr(dev, "works", lambda *_: True)
    monkeypatch.setattr(dev.packages, "missing", list)
    monkeypatch.setenv("MLCC_ALL_INSTALLED", "1")  # restored; the command sets it
    assert dev.test(["--check", *paths]) == 0
    assert order == ["ruff", "ruff", "mypy", "pytest"]
    order.clear()
    monkeypatch.setattr(dev, "run", lambda *words: order.append(words[1]) or 3)
    assert dev.test(["--check", *paths]) == 3 and order == ["ruff"]


def test_which_users_may_install(programs: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert debian.prefix() is None  # no Debian
    programs("apt-get")
    assert debian.prefix() == []
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert debian.prefix() is None
    programs("sudo", code=1)  # asks for a password
    assert debian.prefix() is None
    programs("sudo")
    assert debian.prefix() == ["sudo", "-n"]


def test_installing_says_what_and_why(
    programs: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    programs("apt-get")
    programs("sudo")
    messages: list[str] = []
    assert debian.install([ABSENT, HERE], messages.append)
    assert messages == ["apt-get install frob libfrob1: frobs", "apt-get install python3: frobs"]
    asked, update, install = (tmp_path / "calls").read_text().splitlines()
    assert asked == "sudo -n true" and update.endswith(" update")
    assert install.startswith("sudo -n env DEBIAN_FRONTEND=noninteractive apt-get -qq ")
    assert install.endswith(" install -y --no-install-recommends frob libfrob1 python3")
    programs("sudo", code=1)
    assert not debian.install([ABSENT], messages.append) and len(messages) == 2


def test_errors_of_apt_are_reported(programs: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    programs("apt-get", code=100)
    programs("env", code=100)
    messages: list[str] = []
    assert not debian.install([ABSENT], messages.append)
    assert messages[-1] == "could not install them: E: no env"


def test_without_rights_a_run_of_all_tests_names_what_is_missing(
    dev: Any, programs: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert dev.test([]) == 0
    messages = capsys.readouterr().err
    assert "tests that need frobnicator are skipped" in messages
    assert "apt install frob libfrob1" in messages and "python3" not in messages
    assert dev.ran[-1][:2] == ("-m", "pytest") and "--dist=loadfile" in dev.ran[-1]
    assert "MLCC_ALL_INSTALLED" not in os.environ


def test_where_all_is_installed_nothing_may_be_skipped(
    dev: Any, programs: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packages, "NEEDS", (HERE,))
    monkeypatch.setenv("MLCC_ALL_INSTALLED", "")  # restored afterwards
    assert dev.test(["--long"]) == 0
    assert not capsys.readouterr().err and os.environ["MLCC_ALL_INSTALLED"] == "1"
    assert dev.ran[-1][-1] == "--long" and "--dist=loadfile" in dev.ran[-1]


def test_named_tests_install_nothing(dev: Any, programs: Any, tmp_path: Path) -> None:
    programs("apt-get")
    programs("sudo")
    assert dev.test(["tests/runtime/api", "--long"]) == 0
    assert dev.ran[-1] == ("-m", "pytest", "tests/runtime/api", "--long")
    assert not (tmp_path / "calls").read_text()


def test_an_area_is_a_folder_of_tests(dev: Any) -> None:
    assert dev.test(["--area", "engine", "-k", "grammar"]) == 0
    assert dev.ran[-1] == ("-m", "pytest", "tests/runtime/engine", "-k", "grammar")
    with pytest.raises(SystemExit, match=r"there is no area 'engines'; there are: .*engine, "):
        dev.test(["--area", "engines"])


@pytest.mark.parametrize(
    ("named", "wanted"),
    [
        (["tests/runtime/engine"], False),
        (["tests/runtime/api/test_requests.py::test_it", "-x"], False),
        (["tests/runtime/engine", "tests/e2e/web"], True),
        (["-x"], True),
    ],
)
def test_web_is_built_for_those_that_need_it(dev: Any, named: list[str], wanted: bool) -> None:
    assert dev.needs_web(named) is wanted


def test_the_fast_tests_take_what_the_project_takes(dev: Any) -> None:
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    needs = (ROOT / "requirements" / "fast.in").read_text(encoding="utf-8").splitlines()[1:]
    assert needs and [need for need in needs if f'"{need}"' not in project] == []
    assert set(dev.FAST) <= dev.areas().keys() and set(dev.NO_WEB) <= dev.areas().keys()
    assert all((ROOT / "tests" / name).is_file() for name in dev.FAST_IGNORES)


def test_no_half_of_an_environment_is_left(
    dev: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Debian's Python alone, without apt-get: one line, and the next run begins anew."""
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\nmkdir -p "$4$5"\necho no ensurepip\nexit 1\n')
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    monkeypatch.setattr(sys, "base_prefix", "/usr")
    monkeypatch.setattr(dev, "VENV", tmp_path / "venv")
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin")
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(SystemExit, match=r"no ensurepip; on Debian: apt install python3-venv$"):
        dev.create_venv()
    assert not dev.VENV.exists()


@pytest.mark.parametrize(
    ("flags", "prefix", "system_first"),
    [
        ("'--enable-shared'", "/home/me/.pyenv/versions/3.11.7", True),
        ("'--enable-shared' '--enable-optimizations'", "/opt/python", False),
        ("'--enable-shared'", "/usr", False),
    ],
)
def test_an_environment_is_made_of_the_faster_python(
    dev: Any, monkeypatch: pytest.MonkeyPatch, flags: str, prefix: str, system_first: bool
) -> None:
    """The system's is compiled with optimizations, pyenv's is not."""
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(sys, "base_prefix", prefix)
    monkeypatch.setattr(sysconfig, "get_config_var", {"CONFIG_ARGS": flags}.get)
    monkeypatch.setattr(Path, "exists", lambda path: path.parent == Path("/usr/bin"))
    system = f"/usr/bin/python{sys.version_info.major}.{sys.version_info.minor}"
    assert dev.pythons() == [*([system] if system_first else []), sys.executable]


def test_a_python_that_cannot_make_one_is_passed_over(
    dev: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Debian's without python3-venv: nothing is installed while this Python will do."""
    tried: list[str] = []
    monkeypatch.setattr(dev, "pythons", lambda: ["/usr/bin/python3", sys.executable])
    monkeypatch.setattr(debian, "install", lambda *_: pytest.fail("installs"))
    monkeypatch.setattr(
        debian, "done", lambda *words: tried.append(words[0]) or ("" if tried[1:] else "no venv")
    )
    dev.create_venv()
    assert tried == ["/usr/bin/python3", sys.executable]


def test_llvms_tools_are_found_by_their_versions(programs: Any) -> None:
    here = packages.tools("ld.lld", "llvm-nm")
    programs("ld.lld")
    assert not here()
    programs("llvm-nm-19")
    assert here()


def test_rows_are_distinguished() -> None:
    names = [need.name for need in packages.NEEDS]
    assert len(set(names)) == len(names)
    assert packages.named("llvm").absent == "needs llvm (apt install llvm)"


def test_what_is_made_once_is_made_by_programs_that_are_there(
    dev: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By scripts of the project, or modules of it by the environment's Python, in its folder."""
    calls: list[tuple[tuple[str, ...], Path]] = []

    def done(*command: str, folder: Path) -> str:
        calls.append((command, folder))
        return ""

    monkeypatch.setattr(debian, "done", done)
    monkeypatch.setattr(packages, "NEEDS", MADE)
    for need in packages.slow():
        dev.make(need)
    assert {command[0] for command, _ in calls} > {str(dev.PYTHON)}
    for (program, *words), folder in calls:
        assert folder == ROOT and (program == str(dev.PYTHON) or os.access(program, os.X_OK))
        module = words[1].replace(".", "/") if words[0] == "-m" else ""
        assert not module or (ROOT / f"{module}.py").exists()


TESTS = """
import pytest
@pytest.mark.needs("g++", "llvm")
def test_lacks(): pass
@pytest.mark.needs()
def test_runs(): pass
@pytest.mark.long
def test_long(): pass
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A checkout of these three tests."""
    (tmp_path / "tests" / "helpers").mkdir(parents=True)
    needed = ("__init__.py", "conftest.py", "feature_matrix.py", "helpers/__init__.py")
    for name in (*needed, "helpers/needs.py"):
        shutil.copy(ROOT / "tests" / name, tmp_path / "tests" / name)
    shutil.copytree(ROOT / "tools", tmp_path / "tools")
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    (tmp_path / "tests" / "test_some.py").write_text(TESTS)
    return tmp_path


def ran(project: Path, *arguments: str, **variables: str) -> str:
    """The last lines of pytest, on a machine without any program."""
    command = [sys.executable, "-m", "pytest", "-rsf", "-p", "no:cacheprovider", *arguments]
    named = [str(project / "tests" / "test_some.py")]
    ours = ("CI", "MLCC_ALL_INSTALLED", "PATH", "PYTEST_ADDOPTS")
    kept = {k: v for k, v in os.environ.items() if k not in ours}
    done = subprocess.run(
        [*command, *named],
        cwd=project,
        env={**kept, "PATH": str(project), **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout


def test_a_test_that_lacks_something_names_it(project: Path) -> None:
    messages = ran(project)
    assert (
        "needs g++ (apt install g++)" in messages
        and "1 passed, 1 skipped, 1 deselected" in messages
    )


@pytest.mark.parametrize("variable", ["CI", "MLCC_ALL_INSTALLED"])
def test_where_nothing_may_be_missing_it_fails(project: Path, variable: str) -> None:
    messages = ran(project, **{variable: "1"})
    assert "needs g++ (apt install g++)" in messages and "1 failed" in messages.replace(
        "1 error", "1 failed"
    )
    assert "skipped" not in messages


def test_the_long_tail_runs_when_asked_for(project: Path) -> None:
    assert "2 passed, 1 skipped" in ran(project, "--long")


def test_the_longest_files_of_the_last_run_begin_first(project: Path) -> None:
    names = ("api/test_quick.py", "engine/test_long.py", "engine/test_longest.py")
    for name in names:
        (file := project / "tests" / name).parent.mkdir(exist_ok=True)
        file.write_text("def test_it(): pass\n")
    seconds = {names[0]: 0.1, names[1]: 30.5, names[2]: 70}
    (project / "tests" / "durations.json").write_text(json.dumps(seconds))
    messages = ran(project, str(project / "tests"), "--collect-only")
    order = [line.removeprefix("tests/").partition("::")[0] for line in messages.splitlines()]
    assert order[:3] == [names[2], names[1], names[0]]


def test_a_name_that_is_no_row_is_an_error(project: Path) -> None:
    (project / "tests" / "test_some.py").write_text(TESTS.replace('"g++"', '"gpp"'))
    assert "KeyError: 'gpp'" in ran(project)


@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGTERM that a process may handle")
def test_sigterm_ends_the_commands_of_every_thread() -> None:
    """`kill` of `python3 dev.py run serve` leaves no server behind; and `dev.py check` runs
    TypeScript's command in a thread, where Python allows no signal handler to be set."""
    wait = "import time; print('up', flush=True); time.sleep(60)"
    script = f"""
import dev, sys
from concurrent.futures import ThreadPoolExecutor
dev.PYTHON = sys.executable
dev.forward_signals()
with ThreadPoolExecutor(1) as pool:
    other = pool.submit(dev.run, "-c", {wait!r})
    print(dev.run("-c", {wait!r}), other.result())
"""
    command = [sys.executable, "-c", script]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert sorted(process.stdout.read(len("up\nup\n"))) == sorted("up\nup\n")
        process.terminate()
        assert process.stdout.read() == f"{-signal.SIGTERM} {-signal.SIGTERM}\n"


def module_imports(path: Path, seen: set[Path]) -> set[str]:
    """Top-level packages that a file of tests imports when it is imported, itself or by others
    below tests/."""
    if path in seen or not path.exists():
        return set()
    seen.add(path)
    names: set[str] = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        found: list[str] = []
        if isinstance(node, ast.Import):
            found = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            found = [base, *(f"{base}.{a.name}" for a in node.names if base.startswith("tests"))]
        for name in found:
            names.add(name.partition(".")[0])
            if name.startswith("tests."):
                names |= module_imports((ROOT / name.replace(".", "/")).with_suffix(".py"), seen)
    return names


def test_the_fast_tests_import_what_their_lock_installs(dev: Any) -> None:
    """Else `dev.py test --fast` fails where nothing else is installed."""
    lock = (ROOT / "requirements" / "fast.lock").read_text(encoding="utf-8")
    locked = set(re.findall(r"^([a-z0-9-]+)==", lock, flags=re.MULTILINE))
    owners = packages_distributions()
    ours = {"mlcc", "mlcc_compiler", "mlcc_targets", "tests", "tools", "benchmarks"}
    files = {path for name in dev.FAST for path in dev.areas()[name].rglob("test_*.py")}
    files -= {ROOT / "tests" / name for name in dev.FAST_IGNORES}
    assert len(files) > 100 and "pytest" in locked
    lacking = {}
    for path in sorted(files):
        found = module_imports(path, set()) - ours - set(sys.stdlib_module_names)
        names = {name for name in found if not locked & _normalized(owners.get(name, []))}
        if names:
            lacking[str(path.relative_to(ROOT))] = names
    assert not lacking


def _normalized(distributions: list[str]) -> set[str]:
    return {re.sub(r"[-_.]+", "-", name).lower() for name in distributions}


def test_the_tests_bytecode_is_made_while_the_page_is_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By two processes that are waited for, unless the build fails; once in an environment."""
    spec = importlib.util.spec_from_file_location("mlcc_dev", ROOT / "dev.py")
    assert spec and spec.loader
    dev: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(dev)
    program, seen, go = tmp_path / "python", tmp_path / "seen", tmp_path / "go"
    waits = f"for i in $(seq 6000); do [ -e {go} ] && exit; sleep 0.01; done"
    seen.mkdir()
    new = tmp_path / "new.$$"
    program.write_text(f'#!/bin/sh\necho "$@" > {new}\nmv {new} {seen}\n{waits}\n')
    program.chmod(0o755)
    monkeypatch.setattr(dev, "PYTHON", program)
    monkeypatch.setattr(dev, "VENV", tmp_path)

    def read() -> str:
        """The words of both, of which one reads the folders that the other leaves out."""
        while len(found := list(seen.iterdir())) < 2:
            time.sleep(0.01)
        commands = sorted(path.read_text() for path in found)
        for path in found:
            path.unlink()
        assert all(folder in command for command in commands for folder in dev.HALF)
        assert ["--ignore=" in command for command in commands] == [True, False]
        return commands[0]

    begin = time.monotonic()
    with pytest.raises(SystemExit), dev.reading_tests():
        assert "--collect-only" in read()
        sys.exit(1)
    with dev.reading_tests():
        assert "--collect-only" in read()
        go.touch()
    with dev.reading_tests():
        pass
    assert not list(seen.iterdir()) and time.monotonic() - begin < 50
