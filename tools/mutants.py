"""Mutation testing: changes one expression of a module at a time and runs the tests that cover it.

    python -m tools.mutants runtime/mlcc/server/auth --tests tests/runtime/server/http

A mutant that all tests pass survives: a test is missing, or the mutant is equivalent. Mutants are
made on the syntax tree (DeMillo, Lipton, Sayward, 1978): comparisons, booleans, constants, slices,
digests of fewer bytes, returns, and statements left out. Messages of errors and docstrings stay.

The package is mutated in a temporary folder that is first in the path, also of servers that the
tests start. One run of each test file with a tracer tells which lines it covers, and how long it
takes. Then each mutant runs the files that cover its line, those that killed most others in their
time first, until one fails or takes too long. All are forks of a process that has imported the
libraries, and so are the servers (`forked_programs.py`).
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import ctypes
import hashlib
import importlib
import importlib.util
import json
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from tools import forked_programs

ROOT = Path(__file__).resolve().parent.parent
RUNTIME = ROOT / "runtime"
GUARDING = re.compile(
    r"key|digest|scope|tenant|host|origin|admin|trust|verif|check|refus|raise|limit|most|max|size|"
    r"bound|depth|total|share|rate|timeout|_s\b|path|link|mode|close|cancel|[<>]|compare",
    re.IGNORECASE,
)
"""Lines that guard something, by their words; a sample begins with them."""
SERVED = ("mlcc.server.serve", "mlcc.worker.process")
"""Imported once for each mutant: what the servers of the tests import."""
PRELOADED = ("pytest", "hypothesis", "xdist", "httpx", "openai", "starlette", "uvicorn", "jinja2")
"""Imported once, before the forks. Nothing of mlcc."""
DIGEST_BYTES = 4
"""Bytes that a mutant compares of a digest."""
_PDEATHSIG = 1
SLOWER, PAUSE_S = 2, 10.0
"""A mutant has failed if its tests take longer than SLOWER times the traced run, plus PAUSE_S."""
TRACE = "MLCC_MUTANTS_TRACE"
TRACER = """
import contextlib, json, os, sys, threading

def install(folder):
    files, seen = set(json.load(open(folder + "/files.json"))), set()
    def line(frame, event, arg):
        at = frame.f_code.co_filename, frame.f_lineno
        if at not in seen:
            seen.add(at)
            with contextlib.suppress(OSError), open(f"{folder}/{os.getpid()}.lines", "a") as out:
                out.write(json.dumps(at) + "\\n")  # at once: SIGKILL ends some processes
        return line
    def call(frame, event, arg):
        return line(frame, event, arg) if frame.f_code.co_filename in files else None
    threading.settrace(call)
    sys.settrace(call)

if os.environ.get("MLCC_MUTANTS_TRACE"):
    install(os.environ["MLCC_MUTANTS_TRACE"])
"""
"""`sitecustomize` of the temporary folder: the lines of some files that a process runs."""

Swap = dict[type[ast.AST], type[ast.AST]]
COMPARISONS: Swap = {
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE,
    ast.GtE: ast.Gt, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
OPERATORS: Swap = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.FloorDiv, ast.FloorDiv: ast.Mult,
    ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd, ast.LShift: ast.RShift,
}  # fmt: skip
PROSE = 4
"""Spaces of a text that is an error's."""
NAMES = {"any": "all", "all": "any", "min": "max", "max": "min"}


@dataclass(frozen=True)
class Mutant:
    """One changed node of a file."""

    file: str
    line: int
    what: str
    node: int
    """Its number in `ast.walk`."""
    choice: int
    """Which of the node's mutants."""


def mutants_of(path: Path) -> list[Mutant]:
    """All mutants of a source file."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    skipped = _messages(tree)
    return [
        Mutant(str(path.relative_to(ROOT)), getattr(node, "lineno", 0), what, number, choice)
        for number, node in enumerate(ast.walk(tree))
        if node not in skipped
        for choice, (what, _) in enumerate(_changes(node))
    ]


def source_of(mutant: Mutant) -> str:
    """The source of the mutated file."""
    tree = ast.parse((ROOT / mutant.file).read_text(encoding="utf-8"))
    target = next(node for n, node in enumerate(ast.walk(tree)) if n == mutant.node)
    made = [*_changes(target)][mutant.choice][1]()

    class Replace(ast.NodeTransformer):
        def visit(self, node: ast.AST) -> ast.AST:
            return made if node is target else self.generic_visit(node)

    return ast.unparse(ast.fix_missing_locations(Replace().visit(tree)))


def _messages(tree: ast.AST) -> set[ast.AST]:
    """Nodes whose change no test has to notice: texts of errors, logs, docstrings, annotations, and
    numbers that a module names, of which the next one is as good."""
    found: set[ast.AST] = set()
    for node in getattr(tree, "body", ()):
        if isinstance(node, ast.Assign) and not any(
            isinstance(each, ast.Constant) and not isinstance(each.value, int | float)
            for each in ast.walk(node.value)
        ):
            found.update(ast.walk(node.value))
    for node in ast.walk(tree):
        if isinstance(node, ast.Raise) and node.exc is not None:
            found.update(ast.walk(node.exc))
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            found.update((node, node.value))
        elif isinstance(node, ast.Expr) and ast.unparse(node).startswith("log."):
            found.update(ast.walk(node))
        elif isinstance(node, ast.AnnAssign):
            found.update(ast.walk(node.annotation))
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            args = (*node.args.args, *node.args.kwonlyargs)
            notes = [node.returns, *(arg.annotation for arg in args), *node.decorator_list]
            found.update(each for note in notes if note for each in ast.walk(note))
        elif isinstance(node, ast.JoinedStr):
            found.update(ast.walk(node))
        elif isinstance(node, ast.Constant) and str(node.value).count(" ") >= PROSE:
            found.add(node)
    return found


Change = tuple[str, Callable[[], ast.AST]]


def _changes(node: ast.AST) -> Iterator[Change]:
    """What a node may be replaced by, each with a description."""
    text = ast.unparse(node)[:60] if isinstance(node, ast.expr | ast.stmt) else ""
    if isinstance(node, ast.Compare):
        for i, op in enumerate(node.ops):
            other = COMPARISONS[type(op)]()
            ops = [*node.ops[:i], other, *node.ops[i + 1 :]]
            yield f"{text}: {type(other).__name__}", _with(node, ops=ops)
    elif isinstance(node, ast.BoolOp):
        op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        yield f"{text}: {type(op).__name__}", _with(node, op=op)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield f"{text}: without not", lambda: node.operand
    elif isinstance(node, ast.If | ast.IfExp | ast.While):
        if not isinstance(node.test, ast.Compare | ast.BoolOp | ast.UnaryOp):
            negated = ast.UnaryOp(ast.Not(), node.test)
            yield f"not: {ast.unparse(node.test)[:60]}", _with(node, test=negated)
    elif isinstance(node, ast.BinOp | ast.AugAssign) and type(node.op) in OPERATORS:
        other_op = OPERATORS[type(node.op)]()
        yield f"{text}: {type(other_op).__name__}", _with(node, op=other_op)
    elif isinstance(node, ast.Constant):
        yield from _constants(node)
    elif isinstance(node, ast.Slice):
        for side in ("lower", "upper"):
            if getattr(node, side) is not None:
                yield f"{ast.unparse(node)}: without {side}", _with(node, **{side: None})
    elif isinstance(node, ast.Return) and not isinstance(node.value, ast.Constant | None):
        yield f"{text}: None", _with(node, value=ast.Constant(None))
    elif isinstance(node, ast.Raise) or (
        isinstance(node, ast.Expr) and isinstance(node.value, ast.Call | ast.Await)
    ):
        yield f"without: {text}", ast.Pass
    elif isinstance(node, ast.Call):
        yield from _calls(node, text)


def _constants(node: ast.Constant) -> Iterator[Change]:
    value = node.value
    if isinstance(value, bool):
        yield f"{value}: {not value}", _with(node, value=not value)
    elif isinstance(value, int | float):
        yield f"{value}: {value + 1}", _with(node, value=value + 1)
    elif isinstance(value, str | bytes) and value:
        other = value + ("x" if isinstance(value, str) else b"x")  # type: ignore[operator]
        yield f"{value!r:.40}: {other!r:.40}", _with(node, value=other)


def _calls(node: ast.Call, text: str) -> Iterator[Change]:
    name = node.func.attr if isinstance(node.func, ast.Attribute) else ast.unparse(node.func)
    if name in NAMES and isinstance(node.func, ast.Name):
        yield f"{text}: {NAMES[name]}", _with(node, func=ast.Name(NAMES[name], ast.Load()))
    if name == "compare_digest":
        args = [_first_bytes(arg) for arg in node.args]
        yield f"{text}: of {DIGEST_BYTES} bytes", _with(node, args=args)
    if name in ("digest", "hexdigest"):
        yield f"{text}: {DIGEST_BYTES} bytes", lambda: _first_bytes(node)


def _first_bytes(node: ast.expr) -> ast.expr:
    return ast.Subscript(node, ast.Slice(None, ast.Constant(DIGEST_BYTES)), ast.Load())


def _with(node: ast.AST, **changes: object) -> Callable[[], ast.AST]:
    fields = {name: getattr(node, name, None) for name in node._fields}
    return lambda: type(node)(**{**fields, **changes})


class Sandbox:
    """The mutated package in a temporary folder, and forks that run tests with it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        ignored = shutil.ignore_patterns("__pycache__")
        copy = {"copy_function": os.symlink, "ignore": ignored}
        shutil.copytree(RUNTIME / "mlcc", folder / "mlcc", **copy)  # type: ignore[arg-type]
        (folder / "sitecustomize.py").write_text(TRACER, encoding="utf-8")
        plugins = [plugin.module for plugin in entry_points(group="pytest11")]
        for name in (*PRELOADED, *plugins):
            with contextlib.suppress(ImportError):
                importlib.import_module(name)
        sys.dont_write_bytecode, sys.pycache_prefix = False, str(folder / "bytecode")
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        os.environ["PYTHONPYCACHEPREFIX"] = sys.pycache_prefix

    def write(self, mutant: Mutant | None, file: str) -> None:
        """Mutate a file; None = as it is."""
        place = self.folder / Path(file).relative_to("runtime")
        place.unlink()
        Path(importlib.util.cache_from_source(str(place))).unlink(missing_ok=True)
        if mutant is None:
            place.symlink_to(ROOT / file)
        else:
            place.write_text(source_of(mutant), encoding="utf-8")

    def prepare(self, trace: Path | None) -> None:
        """Make this process, a fork, one that tests the mutated package."""
        null = os.open(os.devnull, os.O_RDWR)
        for number in range(3):
            os.dup2(null, number)
        paths = [str(self.folder), *(str(ROOT / name) for name in ("compiler", "targets"))]
        sys.path[:0] = paths
        os.environ["PYTHONPATH"] = os.pathsep.join(paths)
        if trace is not None:
            os.environ[TRACE] = str(trace)
            sys.modules.pop("sitecustomize", None)
            importlib.import_module("sitecustomize").install(str(trace))
        forked_programs.install()
        for name in SERVED:
            importlib.import_module(name)


def in_fork(work: Callable[[], int], seconds: float) -> int | None:
    """The exit code of a fork that works; None = it took longer, and was ended with the processes
    that it started. A pause of both does not count."""
    pid = os.fork()
    if not pid:
        code = 3
        try:
            os.setsid()
            ctypes.CDLL(None).prctl(_PDEATHSIG, signal.SIGKILL)  # ends with this process
            code = work()
        finally:
            os._exit(code)
    before = time.monotonic()
    while seconds > 0:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
        now = time.monotonic()
        seconds, before = seconds - min(now - before, 0.5), now
    os.killpg(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return None


def run_tests(file: str) -> int:
    """Run the tests of a file until one fails."""
    import pytest

    return int(pytest.main(["-x", "-q", "-p", "no:cacheprovider", "-p", "no:faulthandler", file]))


@dataclass(frozen=True)
class Covering:
    """A test file: seconds of its run, and the lines of each source file that it covers."""

    test: str
    seconds: float
    lines: dict[str, set[int]]

    def row(self) -> dict[str, Any]:
        return {**asdict(self), "lines": {file: sorted(on) for file, on in self.lines.items()}}


def coverage(sandbox: Sandbox, files: Sequence[str], tests: Iterable[str]) -> list[Covering]:
    """What each test file covers, the fastest first. Prints those that fail or cover nothing."""
    found = []
    places = {str(sandbox.folder / Path(f).relative_to("runtime")): f for f in files}
    for test in tests:
        with tempfile.TemporaryDirectory() as folder:
            trace = Path(folder)
            (trace / "files.json").write_text(json.dumps([*places]), encoding="utf-8")
            began = time.monotonic()

            def work(test: str = test, trace: Path = trace) -> int:
                sandbox.prepare(trace)
                return run_tests(test)

            if in_fork(work, 600) != 0:
                print(f"left out, for it fails: {test}", flush=True)
                continue
            seconds = time.monotonic() - began
            lines: dict[str, set[int]] = {file: set() for file in files}
            for part in trace.glob("*.lines"):
                for row in part.read_text(encoding="utf-8").splitlines():
                    place, line = json.loads(row)
                    lines[places[place]].add(line)
        if any(lines.values()):
            found.append(Covering(test, seconds, lines))
            print(f"{seconds:6.1f} s  {test}", flush=True)
    return sorted(found, key=lambda each: each.seconds)


def read_coverage(path: Path) -> list[Covering]:
    """What an earlier run of the same sources found."""
    rows = json.loads(path.read_text(encoding="utf-8"))
    return [
        Covering(row["test"], row["seconds"], {file: {*on} for file, on in row["lines"].items()})
        for row in rows
    ]


class Verdicts:
    """Runs mutants, each with the test files that cover its line, until one fails or all have taken
    `seconds`: first those with a word of the module's name, then those that have killed most others
    in their time, above all of the same file."""

    def __init__(self, sandbox: Sandbox, covering: Sequence[Covering], seconds: float) -> None:
        self._sandbox, self._covering, self._seconds = sandbox, covering, seconds
        self._kills: Counter[tuple[str, str]] = Counter()

    def of(self, mutant: Mutant) -> str:
        """`killed by FILE`, `survived`, `survived N of M files`, or `not covered`."""
        able = [e for e in self._covering if mutant.line in e.lines.get(mutant.file, ())]
        if not able:
            return "not covered"
        able.sort(key=lambda each: self._worth(each, mutant.file), reverse=True)
        self._sandbox.write(mutant, mutant.file)
        try:
            with tempfile.NamedTemporaryFile("r", encoding="utf-8") as out:
                longest = sum(SLOWER * each.seconds + 2 * PAUSE_S for each in able)
                code = in_fork(lambda: self._run(able, Path(out.name)), longest)
                what = out.read() or "killed by the import"
        finally:
            self._sandbox.write(None, mutant.file)
        if code == 0 and what.startswith("killed by "):
            self._kills[what.split()[2], mutant.file] += 1
        return what

    def _worth(self, each: Covering, file: str) -> tuple[bool, float]:
        kills = sum(n for (test, _), n in self._kills.items() if test == each.test)
        named = any(word in Path(each.test).stem for word in Path(file).stem.split("_"))
        return named, (1 + kills + 9 * self._kills[each.test, file]) / each.seconds

    def _run(self, able: Sequence[Covering], out: Path) -> int:
        self._sandbox.prepare(None)
        began, what = time.monotonic(), "survived"
        for number, each in enumerate(able):
            if time.monotonic() - began > self._seconds:
                what = f"survived {number} of {len(able)} files"
                break
            code = in_fork(partial(run_tests, each.test), SLOWER * each.seconds + PAUSE_S)
            if code != 0:
                what = f"killed by {each.test}" + (" (time)" if code is None else "")
                break
        out.write_text(what, encoding="utf-8")
        return 0


def chosen(files: Sequence[str], sample: int | None, seed: int) -> list[Mutant]:
    """The mutants of the files, or as many of them drawn at random: those of lines that guard
    something first."""
    mutants = [mutant for file in files for mutant in mutants_of(ROOT / file)]
    if sample is None or sample >= len(mutants):
        return mutants
    lines = {file: (ROOT / file).read_text(encoding="utf-8").split("\n") for file in files}
    random.Random(seed).shuffle(mutants)
    mutants.sort(key=lambda each: not GUARDING.search(lines[each.file][each.line - 1]))
    return sorted(mutants[:sample], key=lambda each: (each.file, each.node))


def report(verdicts: Sequence[tuple[Mutant, str]]) -> None:
    """Print the share of each folder that was killed."""
    by_folder: dict[Path, list[str]] = {}
    for mutant, what in verdicts:
        by_folder.setdefault(Path(mutant.file).parent, []).append(what)
    for folder, mine in by_folder.items():
        killed = sum(what.startswith("killed") for what in mine)
        print(f"{killed / len(mine):5.0%}  {killed:4} of {len(mine):4}  {folder}")


def survivors(path: Path) -> list[Mutant]:
    """The mutants that an earlier run wrote and that no test killed. Those of files that have
    changed since are left out, with a line that says so: a node's number means another one there.
    """
    found, changed = list[Mutant](), set[str]()
    for row in map(json.loads, path.read_text(encoding="utf-8").splitlines()):
        if row["verdict"].startswith("killed"):
            continue
        mutant = Mutant(**{name: row[name] for name in Mutant.__dataclass_fields__})
        if row.get("source") == source_hash(mutant.file):
            found.append(mutant)
        else:
            changed.add(mutant.file)
    for file in sorted(changed):
        print(f"left out, for it has changed since: {file}; draw its mutants anew", flush=True)
    return found


def source_hash(file: str) -> str:
    """Of a source file as it is; empty if it is gone."""
    path = ROOT / file
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.exists() else ""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.mutants", description=__doc__)
    parser.add_argument("sources", nargs="+", help="files or folders below runtime/")
    parser.add_argument("--tests", nargs="+", required=True, help="test files or folders")
    parser.add_argument("--sample", type=int, help="mutants of each of SOURCES; all without it")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=60, help="most for the tests of a mutant")
    parser.add_argument("--out", type=Path, help="write all verdicts as JSON lines")
    parser.add_argument("--coverage", type=Path, help="a file that keeps what the tests cover")
    parser.add_argument("--again", type=Path, help="an earlier --out: its survivors alone")
    args = parser.parse_args()
    os.chdir(ROOT)
    packages = [_files(source, "*.py") for source in args.sources]
    files = [file for package in packages for file in package]
    tests = [test for folder in args.tests for test in _files(folder, "test_*.py")]
    mutants = [each for package in packages for each in chosen(package, args.sample, args.seed)]
    if args.again:
        mutants = [mutant for mutant in survivors(args.again) if mutant.file in files]
    verdicts: list[tuple[Mutant, str]] = []
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        sandbox = Sandbox(Path(folder))
        out = stack.enter_context(args.out.open("w", encoding="utf-8")) if args.out else None
        if args.coverage and args.coverage.exists():
            covering = read_coverage(args.coverage)
        else:
            covering = coverage(sandbox, files, tests)
        if not covering:
            parser.error("no test file that passes covers these sources")
        if args.coverage:
            args.coverage.write_text(json.dumps([each.row() for each in covering]))
        runs = Verdicts(sandbox, covering, args.seconds)
        for mutant in mutants:
            began = time.monotonic()
            what = runs.of(mutant)
            verdicts.append((mutant, what))
            if not what.startswith("killed"):
                print(f"{mutant.file}:{mutant.line}: {what}: {mutant.what}", flush=True)
            if out is not None:
                took = {"verdict": what, "seconds": time.monotonic() - began}
                row = {**asdict(mutant), "source": source_hash(mutant.file), **took}
                out.write(json.dumps(row) + "\n")
                out.flush()
    report(verdicts)
    return 0


def _files(path: str, pattern: str) -> list[str]:
    found = [Path(path)] if path.endswith(".py") else sorted(Path(path).rglob(pattern))
    return [str(each) for each in found if each.name != "__init__.py"]


if __name__ == "__main__":
    sys.exit(main())
