"""A library records the manifest interface that it was compiled for: another one would give it
wrong offsets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from mlcc.artifact.manifest import Manifest
from mlcc.artifact.schema import TensorSpec, tables_of
from mlcc.errors import ArtifactError
from mlcc.loader import open_model
from mlcc_compiler.checkpoint.folder import Checkpoint
from mlcc_compiler.compile import Progress, compile_model
from mlcc_compiler.options import Options
from mlcc_targets import get_target
from tests.runtime.artifact.small_artifact import rewrite
from tests.runtime.commands.tiny_checkpoint import write_checkpoint


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("interface")
    checkpoint = Checkpoint.open(write_checkpoint(folder / "tiny"))
    return compile_model(checkpoint, get_target("cpu"), folder / "out", Options(), Progress())


def _rows(m: Manifest) -> Manifest:
    """Other bounds, with the tables that fit them."""
    limits = replace(m.limits, max_rows=2 * m.limits.max_rows)
    layout = limits.layout([cache.group for cache in m.caches])
    return replace(m, limits=limits, tables=tables_of(layout))


def _vocabulary(m: Manifest) -> Manifest:
    return replace(m, model=replace(m.model, vocab_size=2 * m.model.vocab_size))


def _smaller_pages(m: Manifest) -> Manifest:
    """Half as many tokens a page and twice as many pages, consistently."""

    def half(tensor: TensorSpec) -> TensorSpec:
        a, b, c, size, d = tensor.shape
        return replace(tensor, shape=(a, b, c, int(size) // 2, d))

    (cache,) = m.caches
    tensors = tuple(map(half, cache.tensors))
    cache = replace(cache, page_size=cache.page_size // 2, pool=2 * cache.pool, tensors=tensors)
    limits = replace(m.limits, max_step_pages=2 * m.limits.max_step_pages)
    tables = tables_of(limits.layout([cache.group]))
    return replace(m, caches=(cache,), limits=limits, tables=tables)


def _other_order(m: Manifest) -> Manifest:
    return replace(m, weights=replace(m.weights, tensors=m.weights.tensors[::-1]))


@pytest.mark.parametrize("change", [_rows, _vocabulary, _smaller_pages, _other_order])
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
