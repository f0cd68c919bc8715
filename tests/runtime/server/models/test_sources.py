"""What a server knows of a compiled model before it is loaded: memory, and whether experts may stay
in their file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from mlcc.engine_args import EngineArgs
from mlcc.errors import CapacityError
from mlcc.model.memory.planner import plan_capacity
from mlcc.server.models.sources import _streams, artifact_source
from tests.runtime.artifact.small_artifact import make
from tests.runtime.model.test_expert_offload import MB, MIXTURE, compiled

PAGE_BYTES = 2 * 16 * 64 * 2
"""Keys and values of a page of the small artifact: 16 tokens, 64 wide, float16."""
PAGES = 8
"""Those of a full batch: `pool` of its cache."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("sources") / "tiny")


def test_spare_memory_is_three_times_the_pages_of_a_full_batch(folder: Path) -> None:
    needs = artifact_source(folder, EngineArgs()).needs
    assert needs.spare - needs.full == 3 * PAGES * PAGE_BYTES
    for args in (EngineArgs(prefix_cache=False), EngineArgs(kv_pages=PAGES)):
        assert artifact_source(folder, args).needs == replace(needs, spare=needs.full)


def test_weights_are_not_read_before_the_model_is_loaded(tmp_path: Path) -> None:
    path = make(tmp_path / "tiny") / "weights-00001-of-00001.safetensors"
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    assert artifact_source(path.parent, EngineArgs()).name == "org/tiny"


def test_experts_may_stay_in_their_file_on_a_cpu() -> None:
    """The whole model needs 1,211 MB and a reserve; with one layer's experts of 300 MB at a time,
    567 MB (MiB)."""
    model = compiled(MIXTURE)
    check = _streams(plan_capacity(model), model, False)
    assert check is not None
    check(568 * MB)
    with pytest.raises(CapacityError):
        check(560 * MB)
    dense, gpu = (
        compiled(MIXTURE[:1]),
        replace(model, target=replace(model.target, device="webgpu")),
    )
    for other in (dense, gpu):
        assert _streams(plan_capacity(other), other, False) is None
