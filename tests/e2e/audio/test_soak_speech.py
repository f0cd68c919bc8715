"""A short soak over a small random Whisper: recordings in every format, files that must be refused,
slow readers and kills of the engine. The long form is `python -m benchmarks.server.soak`."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from benchmarks.server import soak
from benchmarks.server.soak import Soak
from benchmarks.server.soak_speech import SpeechRequests, fixed_forms, hostile_forms
from mlcc_compiler.checkpoint.folder import Checkpoint
from mlcc_compiler.compile import Progress, compile_model
from mlcc_compiler.options import Options
from mlcc_targets import Choices, get_target
from tests.compiler.audio.checkpoints import whisper
from tests.runtime.server.helpers.server_process import serving_models

pytestmark = pytest.mark.long
REQUESTS, CLIENTS, KILLS = 150, 6, 2


def test_no_recording_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(soak, "SAMPLES", 8)
    monkeypatch.setattr(soak, "GROWTH", 2.0)  # so few requests still warm up
    whisper(tmp_path)
    wanted = Options(quant="f32", max_batch=4, max_step_tokens=64)
    target, out = get_target("reference", Choices()), tmp_path / "compiled"
    compile_model(Checkpoint.open(tmp_path), target, out, wanted, Progress())
    with serving_models(str(out)) as server:
        work = Soak(
            server.url,
            server.process.pid,
            requests=REQUESTS,
            clients=CLIENTS,
            vocab=0,
            kills=KILLS,
            own=SpeechRequests(11, translates=True),
        )
        asyncio.run(work.run())
    print("\n".join(work.wrong))  # the answers themselves
    assert work.faults() == [], work.outcomes
    assert work.outcomes.total() == REQUESTS and work.killed == KILLS
    kinds = {name.rpartition(": ")[0] for name in work.outcomes}
    assert {call.kind for call in (*fixed_forms(True), *hostile_forms())} <= kinds
    assert "slow" in kinds and "hangs up" in kinds
    broken = sum(count for name, count in work.outcomes.items() if name.endswith("broken"))
    assert broken <= CLIENTS * KILLS  # at most each client's one request, for each kill
    answers = {words for kind, words in work.quiet.items() if "stream" not in kind}
    assert len(answers) > 3  # recordings differ, and so do formats
