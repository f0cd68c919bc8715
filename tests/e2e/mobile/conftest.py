"""A program over the C library whose Python runs and can import the tests' helpers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.helpers.mobile.c_host import Host
from tests.helpers.mobile.c_library import SITE, Library


@pytest.fixture
def host(c_library: Library) -> Iterator[Host]:
    with Host(c_library.program) as running:
        reply = running.start(path=":".join(SITE))
        assert reply.c == 0, reply
        yield running
