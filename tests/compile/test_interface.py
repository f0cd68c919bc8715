"""A library says which manifest it was compiled for: another one would have it compute addresses
with numbers that its pages do not have."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from artifact.small_artifact import rewrite
from cli.tiny_checkpoint import write_checkpoint

from mlcc.errors import ArtifactError
from mlcc.manifest import Manifest
from mlcc.model import open_model
from mlcc.schema import TensorSpec
from mlcc_compiler.checkpoint.folder import Checkpoint
from mlcc_compiler.compile import Progress, compile_model
from mlcc_compiler.plan import Options
from mlcc_targets import get_target


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("interface")
    checkpoint = Checkpoint.open(write_checkpoint(folder / "tiny"))
    return compile_model(checkpoint, get_target("cpu"), folder / "out", Options(), Progress())


def _window(m: Manifest) -> Manifest:
    return replace(m, limits=replace(m.limits, window=16))


def _vocabulary(m: Manifest) -> Manifest:
    return replace(m, model=replace(m.model, vocab_size=2 * m.model.vocab_size))


def _smaller_pages(m: Manifest) -> Manifest:
    """Half as many tokens a page and twice as many pages, consistently."""

    def half(tensor: TensorSpec) -> TensorSpec:
        a, b, c, size, d = tensor.shape
        return replace(tensor, shape=(a, b, c, int(size) // 2, d))

    kv, pages = m.kv, 2 * m.kv.num_pages
    tensors = tuple(map(half, kv.tensors))
    kv = replace(kv, page_size=kv.page_size // 2, num_pages=pages, tensors=tensors)
    return replace(m, kv=kv, limits=replace(m.limits, max_step_pages=pages))


def _other_order(m: Manifest) -> Manifest:
    return replace(m, weights=replace(m.weights, tensors=m.weights.tensors[::-1]))


@pytest.mark.parametrize("change", [_window, _vocabulary, _smaller_pages, _other_order])
def test_numbers_that_the_code_was_not_compiled_for(
    model: Path, change: Callable[[Manifest], Manifest]
) -> None:
    data = (model / "mlcc.json").read_bytes()
    rewrite(model, change)
    try:
        with pytest.raises(ArtifactError, match=r"was compiled for another mlcc\.json") as caught:
            open_model(model)
        assert caught.value.message.isprintable()
    finally:
        (model / "mlcc.json").write_bytes(data)
    open_model(model).close()
