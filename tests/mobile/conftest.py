"""A program over the C library, over the toy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import pytest
from c_host import Host, Tokenizer
from c_library import SITE, Library

TOY = "toy_model:open_toy"
Started = Callable[..., AbstractContextManager[Host]]


@pytest.fixture
def host(c_library: Library) -> Iterator[Host]:
    """A program whose Python runs, and finds the toy."""
    with started(c_library) as running:
        yield running


def started(library: Library, tokenizer: Tokenizer | None = None) -> Host:
    """The same, with a tokenizer."""
    running = Host(library.program, tokenizer)
    told = running.start(path=":".join(SITE))
    assert told.c == 0, told
    return running
