"""Skips a test on a machine that lacks something, with its name and how to install it.

Where everything must be installed, it fails instead: in CI, and where `dev.py test` has installed
it. Tests declare `@pytest.mark.needs("chromium", ...)`, names of `tools/packages.py`; fixtures and
helpers call the functions here.
"""

from __future__ import annotations

import os

import pytest

from tools import packages


def absent(what: str) -> None:
    """Skip the test, or fail it where all packages must be installed. what: the reason."""
    if os.environ.get("CI") or os.environ.get("MLCC_ALL_INSTALLED"):
        pytest.fail(what, pytrace=False)
    pytest.skip(what)


def require(*names: str) -> None:
    """The test cannot run unless these rows of packages are here. Raises KeyError for others."""
    for need in map(packages.named, names):
        if need.is_here():
            continue
        if need.command:  # CI may lack it
            pytest.skip(need.absent)
        absent(need.absent)


def require_target(name: str) -> None:
    """Skip the test if a target cannot be compiled here, with the reason of the target's own
    check."""
    from mlcc_compiler.driver.toolchain import missing
    from mlcc_targets import get_target

    if reason := missing(get_target(name)):
        absent(f"target '{name}': {reason}")
