"""A process that ends while it starts: noticed although this process holds its end of the pipe, as
on Windows."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable
from multiprocessing.connection import Connection

import pytest

from mlcc.util.child_processes import await_first_message, child_process


def say(connection: Connection) -> None:
    connection.send("hello")


def press_ctrl_c(connection: Connection) -> None:
    os.kill(os.getpid(), signal.SIGINT)
    connection.send("not ended")


def test_a_process_that_ends_before_it_says_anything() -> None:
    here, there = multiprocessing.Pipe()
    process = child_process("ends", os._exit, 3)
    process.start()
    with pytest.raises(EOFError):
        await_first_message(here, process)
    there.close()  # not before


@pytest.mark.parametrize("target, words", [(say, "hello"), (press_ctrl_c, "not ended")])
def test_the_last_words_of_a_process_are_read(
    target: Callable[[Connection], None], words: str
) -> None:
    here, there = multiprocessing.Pipe()
    process = child_process("speaks", target, there)
    process.start()
    process.join()
    await_first_message(here, process)
    assert here.recv() == words
