"""In a tab of Chromium, a Mistral 3, whose images have tokens of text between their lines, a
LLaVA-OneVision, whose tiles' rows are packed, and both kinds of Gemma 4: the tower on its GPU in
software, the same answers as transformers'."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from mlcc.artifact.folder import Artifact
from mlcc_compiler.checkpoint.folder import Checkpoint
from mlcc_compiler.compile import Progress, compile_model
from mlcc_compiler.options import Options
from mlcc_targets import Choices, get_target
from tests.e2e.vision.families import Oracle, save_family
from tests.e2e.vision.test_families_served import FILES, GREEDY, NEW, parts_of
from tests.helpers import needs
from tests.helpers.web_package import bridge

pytestmark = pytest.mark.long
Tab = tuple[str, Oracle]


def in_bytes(path: Path) -> None:
    """The same tokens as a byte-level BPE without merges, which tabs compute."""
    words = Tokenizer.from_file(str(path))
    special = {token.content: at for at, token in words.get_added_tokens_decoder().items()}
    spelled = {" ": "\u0120", "\n": "\u010a"}
    letters = {spelled.get(word, word): at for word, at in words.get_vocab().items()}
    made = Tokenizer(models.BPE(letters, []))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens(sorted(special, key=special.__getitem__))
    made.save(str(path))


def seen_by(family: str, row: str) -> Any:
    return pytest.param(family, marks=pytest.mark.feature(row, "webgpu", "runs"))


SHOWN = [
    seen_by("mistral3", "mistral3-images"),
    seen_by("llava_onevision", "llava-onevision"),
    seen_by("gemma4", "gemma4-images"),
    seen_by("gemma4-both-ways", "gemma4-images"),
]


@pytest.fixture(scope="module", params=SHOWN)
def tab(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    needs.require_target("webgpu")
    family = request.param
    folder = tmp_path_factory.mktemp(family)
    model = save_family(family, folder)
    in_bytes(folder / "tokenizer.json")
    target, wanted = get_target("webgpu", Choices(f16=False)), Options(quant="f32", max_batch=2)
    out = folder / "webgpu"
    compile_model(Checkpoint.open(folder), target, out, wanted, Progress())
    info = Artifact.open(out, host=False).manifest.vision
    assert info is not None
    with bridge("chromium", out) as url:
        yield url, Oracle(family, model, info)


@pytest.mark.parametrize(
    ("text", "files"),
    [("@what is this?", FILES[:1]), ("see @ and @", [FILES[1], FILES[0]]), ("no image", [])],
)
def test_an_answer_is_that_of_transformers(tab: Tab, text: str, files: list[bytes]) -> None:
    url, oracle = tab
    body = {
        "messages": [{"role": "user", "content": parts_of(text, files)}],
        "max_tokens": NEW, **GREEDY,
    }  # fmt: skip
    answer = httpx.post(f"{url}/v1/chat/completions", json=body, timeout=300)
    assert answer.status_code == 200, answer.text
    wanted, _ = oracle.answer(oracle.rendered(("user", text)), files, NEW)
    assert answer.json()["choices"][0]["message"]["content"] == wanted
