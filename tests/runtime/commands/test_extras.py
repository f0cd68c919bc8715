"""The dependencies of `pip install mlcc` and of its extras: pyproject.toml, and the code that names
them."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from mlcc.errors import UnsupportedError
from mlcc.util import extras
from mlcc.version import TVM, TVM_FFI

PROJECT = (Path(__file__).parents[3] / "pyproject.toml").read_text(encoding="utf-8")


def listed(name: str) -> str:
    """The packages of an extra of pyproject.toml."""
    found = re.search(rf"^{name} = \[(.*?)\]$", PROJECT, re.MULTILINE | re.DOTALL)
    assert found, name
    return found[1]


def test_a_bare_install_is_small() -> None:
    assert set(re.findall(r'"([a-z0-9_]+)', listed("dependencies"))) == {
        "click",
        "jinja2",
        "tokenizers",
    }


def test_what_the_executor_has_inside_is_what_compiles() -> None:
    pins = [f'"apache-tvm=={TVM}"', f'"apache-tvm-ffi=={TVM_FFI}"']
    assert all(pin in listed("tvm") and PROJECT.count(pin) == 2 for pin in pins)
    assert PROJECT.count("apache-tvm") == 4, "the same in [tvm] and to build"


@pytest.mark.parametrize(
    "name", ["compile", "serve", "reference", "structured", "av", *extras.OF_DEVICE.values()]
)
def test_suggested_commands_exist(name: str) -> None:
    assert listed(name)
    assert f'pip install "mlcc[{name}]"' in extras.advice("tvm", name)


def test_a_missing_package_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    assert extras.lacking("serve") == "serve" and not extras.lacking("run")
    with pytest.raises(UnsupportedError, match=r'serving needs uvicorn, which .*"mlcc\[serve\]"'):
        extras.require("uvicorn", "serve", "serving")
    assert extras.advice("antigravity") == ""
