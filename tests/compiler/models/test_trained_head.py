"""examples/demo/train_eagle.py for a model that is no Llama, on text of its own."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from mlcc_compiler.checkpoint.folder import Checkpoint
from mlcc_compiler.options import Options
from mlcc_compiler.plan import make_plan
from mlcc_targets import get_target
from tests.compiler.models.helpers.checkpoints import config_of, save_random
from tests.compiler.models.helpers.mixed import capacity_of, reference
from tests.compiler.models.helpers.mtp import MtpOracle
from tests.compiler.models.test_mtp import worst_error

DEMO = Path(__file__).parents[3] / "examples" / "demo"


class TrainedHead(MtpOracle):
    """A model and the head as the training has it."""

    def __init__(self, model: Any, eagle: Any, attention: Any) -> None:
        super().__init__(model, [], {}, "gemma3")
        self.eagle, self.attention = eagle, attention

    @torch.no_grad()
    def main(self, tokens: list[int]) -> tuple[np.ndarray[Any, Any], torch.Tensor]:
        ids = torch.tensor([tokens])
        found = self.model.model(ids, use_cache=False, output_hidden_states=True)
        three = torch.cat([found.hidden_states[layer] for layer in self.eagle.inputs], -1)
        return self.model.lm_head(found.last_hidden_state[0]).numpy(), self.eagle.fuse(three)[0]

    @torch.no_grad()
    def mtp(
        self, tokens: list[int], hidden: torch.Tensor
    ) -> tuple[np.ndarray[Any, Any], torch.Tensor]:
        attend = self.attention(self.eagle.midlayer.self_attn, self.eagle.rotary)
        embedded = self.model.model.embed_tokens(torch.tensor([tokens]))
        states = self.eagle(embedded, hidden[None], attend)[0]
        logits = np.full((len(tokens), self.model.config.vocab_size), -1e30)
        logits[:, self.eagle.tokens] = self.eagle.lm_head(self.eagle.norm(states)).numpy()
        return logits, states


def write_rows(path: Path, count: int) -> None:
    """Rows of random tokens, and one that is not complete."""
    rng = np.random.default_rng(count)
    rows = [rng.integers(3, 131, 12 + i).tolist() for i in range(count)]
    lines = [json.dumps({"prompt": row[:4], "text": row[4:]}) + "\n" for row in rows]
    path.write_text("".join(lines) + lines[0][:9])


@pytest.fixture
def scripts(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(DEMO))
    import own_batches
    import train_eagle
    import train_mtp

    threads = torch.get_num_threads()
    yield argparse.Namespace(eagle=train_eagle, own=own_batches, mtp=train_mtp)
    torch.set_num_threads(threads)


def test_a_trained_head_is_compiled_as_it_was_trained(scripts: Any, tmp_path: Path) -> None:
    """Its folder's logits, in a reference run of the compiled model, are those of the training."""
    whole: Any = save_random(config_of("gemma3", num_hidden_layers=7), tmp_path / "model")
    write_rows(tmp_path / "own.jsonl", 6)
    args = argparse.Namespace(
        **{"text": tmp_path / "own.jsonl", "vocabulary": 40, "output": tmp_path / "head"},
        **{"minutes": 0.03, "wall": True, "rate": 3e-3},
    )
    torch.manual_seed(0)
    model = scripts.own.open_model(tmp_path / "model")
    batches = scripts.own.OwnBatches(args.text, 1, 64)
    before = scripts.eagle.Eagle(model, torch.arange(40))
    eagle = scripts.eagle.train(model, batches, args).eval()
    assert not torch.equal(eagle.fc.weight, before.fc.weight)
    assert eagle.scale.max() > 1.5 * eagle.scale.min()
    given = Options(quant="f32", context=128, max_batch=8, draft_head=tmp_path / "head")
    plan = make_plan(Checkpoint.open(tmp_path / "model"), get_target("cpu"), given)
    oracle = TrainedHead(whole.float(), eagle, scripts.mtp.ChainAttention)
    assert worst_error(reference(plan, capacity_of(plan)), oracle) < 1e-3


def test_a_training_reads_what_is_added(scripts: Any, tmp_path: Path) -> None:
    path = tmp_path / "own.jsonl"
    write_rows(path, 3)
    batches = scripts.own.OwnBatches(path, 1, 32)
    steps = iter(batches)
    first = [next(steps) for _ in range(2)]
    assert [sum(batch.ids.shape[0] for batch in first), len(batches.batches)] == [3, 2]
    write_rows(path, 5)
    again = [next(steps) for _ in range(len(batches.batches) + 1)]
    assert batches.read == 5
    assert {id(batch) for batch in first} <= {id(batch) for batch in again}, "kept as they were"
