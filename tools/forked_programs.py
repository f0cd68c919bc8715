"""Python programs that tests start, as forks of the process that starts them.

A server of the tests imports for a second what the tests have imported already. `install` replaces
the start of Python scripts and modules by `subprocess`, and of processes by multiprocessing's
"spawn", with a fork that has the arguments, environment, standard streams and signal handlers of a
new interpreter. Everything else is started as always. Linux, CPython; used by `tools.mutants`.
"""

from __future__ import annotations

import asyncio
import atexit
import gc
import io
import logging
import multiprocessing.process
import os
import runpy
import signal
import subprocess
import sys
import threading
import traceback
import types
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from multiprocessing import resource_tracker, spawn, util
from pathlib import Path
from typing import Any

_execute = subprocess.Popen._execute_child  # type: ignore[attr-defined]
_spawn = util.spawnv_passfds  # type: ignore[attr-defined]
UNLIKE = ("preexec_fn", "shell", "gid", "gids", "uid", "executable", "startupinfo")
"""Arguments of Popen with which a program is started as always."""
NAMES = _execute.__code__.co_varnames[1 : _execute.__code__.co_argcount]


def install() -> None:
    """From now on, Python programs that this process starts are forks of it."""
    subprocess.Popen._execute_child = _execute_child  # type: ignore[attr-defined]
    util.spawnv_passfds = _spawnv_passfds  # type: ignore[attr-defined]


def _execute_child(self: Any, *values: Any) -> None:
    given = dict(zip(NAMES, values, strict=True))
    run = _program(given["args"])
    if run is None or any(given[name] not in (None, False, -1) for name in UNLIKE):
        return _execute(self, *values)  # type: ignore[no-any-return]
    streams = [given[name] for name in ("p2cread", "c2pwrite", "errwrite")]
    pid = _fork()
    if not pid:
        _become(run, given["args"], streams, given)
    self.pid, self._child_created = pid, True
    ends = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
    self._close_pipe_fds(*(given[name] for name in ends))


def _program(args: Any) -> Callable[[], object] | None:
    """What runs a command line of Python; None if it is none, or has options of the interpreter."""
    if isinstance(args, str | bytes) or len(args) < 2 or args[0] != sys.executable:
        return None
    first = str(args[1])
    if first.endswith(".py"):
        return lambda: _run_script(first)
    if first == "-m" and len(args) > 2 and str(args[2]).startswith(("mlcc", "tests")):
        return lambda: runpy.run_module(str(args[2]), run_name="__main__", alter_sys=True)
    return None


def _run_script(path: str) -> None:
    main = types.ModuleType("__main__")
    main.__file__ = path
    sys.modules["__main__"] = main  # multiprocessing and pickle look here
    sys.path.insert(0, str(Path(path).parent))
    exec(compile(Path(path).read_bytes(), path, "exec"), main.__dict__)


def _spawnv_passfds(path: str, args: Sequence[Any], passfds: Sequence[int]) -> int:
    """As multiprocessing's: starts `spawn_main(tracker_fd=..., pipe_handle=...)`."""
    words = [os.fsdecode(arg) for arg in args]
    call = next((word for word in words if "spawn_main(" in word), None)
    if call is None:
        return int(_spawn(path, args, passfds))
    named = (pair.split("=") for pair in call.partition("spawn_main(")[2].rstrip(")").split(", "))
    handles = {name: int(value) for name, value in named}
    pid = _fork()
    if not pid:
        argv = [words[0], *words[words.index(call) + 1 :]]
        _become(lambda: spawn.spawn_main(**handles), argv, [-1] * 3, {"pass_fds": passfds}, 0)
    return pid


def _fork() -> int:
    sys.stdout.flush()
    sys.stderr.flush()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Python 3.12: the process has threads
        return os.fork()


def _become(
    run: Callable[[], object],
    args: Sequence[Any],
    streams: Sequence[int],
    given: Mapping[str, Any],
    skipped: int = 1,
) -> None:
    """Be the new program; does not return."""
    code = 1
    try:
        gc.freeze()
        _take_streams(streams, given.get("pass_fds") or ())
        _reset(given)
        sys.argv = [str(arg) for arg in args[skipped + (args[1] == "-m") :]]
        code = _exit_code(run)
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        sys.stdout.flush()
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def _take_streams(streams: Sequence[int], kept: Sequence[int]) -> None:
    copies = [os.dup(fd) if fd >= 0 else -1 for fd in streams]
    for number, copy in enumerate(copies):
        if copy >= 0:
            os.dup2(copy, number)
    first = 3
    for fd in sorted(kept):
        os.closerange(first, fd)
        os.set_inheritable(fd, True)
        first = fd + 1
    os.closerange(first, os.sysconf("SC_OPEN_MAX"))
    sys.stdin = io.TextIOWrapper(io.FileIO(0, closefd=False), "utf-8")
    sys.stdout, sys.stderr = (
        io.TextIOWrapper(io.FileIO(fd, "w", closefd=False), "utf-8", write_through=fd == 2)
        for fd in (1, 2)
    )
    sys.__stdin__, sys.__stdout__, sys.__stderr__ = sys.stdin, sys.stdout, sys.stderr


def _reset(given: Mapping[str, Any]) -> None:
    """Forget what the starting process had registered."""
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals():
        if callable(signal.getsignal(number)) or number == signal.SIGINT:
            with suppress(OSError, ValueError):
                signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    if given.get("start_new_session"):
        os.setsid()
    if given.get("cwd"):
        os.chdir(given["cwd"])
    if given.get("env") is not None:
        os.environ.clear()
        os.environ.update(given["env"])
    atexit._clear()
    atexit.register(util._exit_function)  # type: ignore[attr-defined]
    util._finalizer_registry.clear()  # type: ignore[attr-defined]
    multiprocessing.process._children.clear()  # type: ignore[attr-defined]
    tracker = resource_tracker._resource_tracker
    tracker._fd = tracker._pid = None  # type: ignore[attr-defined]
    asyncio._set_running_loop(None)
    asyncio.set_event_loop(None)
    for logger in (logging.root, *logging.root.manager.loggerDict.values()):
        if isinstance(logger, logging.Logger):
            logger.handlers.clear()
    warnings.resetwarnings()
    warnings.simplefilter("ignore")
    sys.excepthook, threading.excepthook = sys.__excepthook__, threading.__excepthook__
    sys.unraisablehook = sys.__unraisablehook__


def _exit_code(run: Callable[[], object]) -> int:
    try:
        run()
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        print(end.code, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    except BaseException:
        traceback.print_exc()
        return 1
    return 0
