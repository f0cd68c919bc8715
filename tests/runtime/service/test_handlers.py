"""Every address has one file that answers it, which the table names."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module

import pytest

from mlcc.service.http.handlers import MODULES, handler, place_handler
from mlcc.service.http.routes import ADDRESSES


def test_each_address_is_answered_once() -> None:
    named = [address for addresses in MODULES.values() for address in addresses]
    assert len(named) == len(set(named)) and set(named) == set(ADDRESSES)
    for address in named:
        assert (handler(address) is None) != (place_handler(address) is None), address.path


@pytest.mark.parametrize("module", MODULES)
def test_a_file_answers_what_the_table_says(module: str) -> None:
    file = import_module(module)
    answered = {**getattr(file, "HANDLERS", {}), **getattr(file, "PLACE_HANDLERS", {})}
    assert answered.keys() == set(MODULES[module])


def test_no_protocol_is_imported_before_it_is_spoken() -> None:
    script = (
        "import sys, mlcc.service.service\n"
        "tools = 'mlcc.api.parsers.tools.'\n"
        "late = ('mlcc.service.protocols.', tools + 'kimi', tools + 'glm')\n"
        "print([name for name in sys.modules if name.startswith(late)])"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert run.stdout == "[]\n"
