"""Libraries are built in threads beside the weights: a failure in a thread ends the compile."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path

import pytest

from mlcc_compiler.checkpoint.folder import Checkpoint
from mlcc_compiler.compile import Progress, compile_model
from mlcc_compiler.driver.libraries import Libraries
from mlcc_compiler.options import Options
from mlcc_targets import TargetError, get_target
from tests.runtime.commands.tiny_checkpoint import write_checkpoint


def test_a_failed_build_leaves_nothing(tmp_path: Path) -> None:
    checkpoint = Checkpoint.open(write_checkpoint(tmp_path / "model"))

    def link(objects: list[Path], library: Path) -> None:
        raise TargetError("no linker today")

    out = tmp_path / "out" / "artifact"
    target = replace(get_target("cpu"), link=link)
    options = Options(quant="f32", context=32, max_batch=1)
    with pytest.raises(TargetError, match="no linker today"):
        compile_model(checkpoint, target, out, options, Progress())
    assert [path.name for path in out.parent.iterdir() if path.is_dir()] == []


def test_weights_stop_when_a_build_has_failed() -> None:
    """The error comes at once, not after all weights are packed, which can take minutes."""
    failed: Future[None] = Future()
    libraries, seen = Libraries([], [failed]), list[int]()
    with pytest.raises(TargetError):
        for number in libraries.watched(range(10)):
            seen.append(number)
            if number == 3:
                failed.set_exception(TargetError("no linker today"))
    assert seen == [0, 1, 2, 3]
