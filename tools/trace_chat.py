"""Traces a chat of one token through the runtime and counts what a reader of its code would visit.

    python -m tools.trace_chat MODEL            the counts, and files by folder
    python -m tools.trace_chat MODEL --walk     each call, in order

MODEL is a compiled model's folder. The chat runs in this process, through `mlcc.Engine`, after
another one that has imported everything. Counted are calls of Python functions of `mlcc`, one
thread after another, as how they take turns differs from run to run: files entered, functions,
moves (the function called is in another file than the one called before it) and returns (a move to
a file that was entered before).
"""

from __future__ import annotations

import argparse
import sys
import threading
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import mlcc

PACKAGE = Path(mlcc.__file__).parent
MESSAGES = [{"role": "user", "content": "Hi"}]


@dataclass(frozen=True)
class Walk:
    """Calls of functions of mlcc in the order of each thread, as (file, qualified name)."""

    steps: Sequence[tuple[str, str]]

    @property
    def files(self) -> list[str]:
        """Files in the order in which they were entered."""
        return list(dict.fromkeys(file for file, _ in self.steps))

    @property
    def functions(self) -> int:
        """The number of distinct functions that were called."""
        return len(set(self.steps))

    @property
    def moves(self) -> list[str]:
        """Files in the order of the walk, consecutive equal ones once."""
        files = [file for file, _ in self.steps]
        return [file for i, file in enumerate(files) if i == 0 or files[i - 1] != file]

    @property
    def returns(self) -> int:
        """Moves to a file that was entered before."""
        return len(self.moves) - len(self.files)


def traced(model: Path) -> Walk:
    """The walk of a chat of one token. Raises what `mlcc.Engine` raises."""
    codes: defaultdict[int, list[CodeType]] = defaultdict(list)
    """By thread, in the order of their first calls."""
    recording = False

    def profile(frame: FrameType, event: str, _: Any) -> None:
        if recording and event == "call":
            codes[threading.get_ident()].append(frame.f_code)

    threading.setprofile(profile)
    try:
        with mlcc.Engine(model) as engine:
            sys.setprofile(profile)
            ask = partial(engine.chat.completions.create, messages=MESSAGES, max_tokens=1)
            ask(temperature=0)
            recording = True
            ask(temperature=0)
            recording = False
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]  # as for sys.setprofile
    return Walk(list(_of_package(chain.from_iterable(codes.values()))))


def _of_package(codes: Iterable[CodeType]) -> Iterable[tuple[str, str]]:
    """(file, function) of the code objects in mlcc's package."""
    for code in codes:
        path = Path(code.co_filename)
        if path.is_relative_to(PACKAGE):
            yield str(path.relative_to(PACKAGE)), getattr(code, "co_qualname", code.co_name)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.trace_chat", description=__doc__)
    parser.add_argument("model", type=Path, help="a compiled model's folder")
    parser.add_argument("--walk", action="store_true", help="each call, in order")
    given = parser.parse_args(arguments)
    walk = traced(given.model)
    if given.walk:
        for file, name in walk.steps:
            print(f"{file}: {name}")
    counts = f"{len(walk.files)} files, {walk.functions} functions"
    print(f"{counts}, {len(walk.moves)} moves, {walk.returns} returns")
    for folder, count in Counter(file.partition("/")[0] for file in walk.files).most_common():
        print(f"{count:4} {folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
