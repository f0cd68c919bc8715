"""llama.cpp's log-probabilities of the files that tests write, beside those of transformers.

    python tests/compiler/checkpoint/helpers/llama_cpp.py LLAMA_SERVER [CASE...]

LLAMA_SERVER is llama.cpp's server (in a chroot: a script that enters it; /tmp must be the same).
Prints the largest difference at the token after a prompt of 40. Run by hand: no test has llama.cpp.
If it refuses a file, its last lines are printed; docs/checkpoints.md lists the cases that it does
not compute, with reasons.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import Request, urlopen

import numpy as np

from tests.compiler.checkpoint.helpers.gguf_of import write_gguf
from tests.compiler.checkpoint.test_gguf_architectures import CASES, FOLDED, make
from tests.compiler.models.helpers.checkpoints import oracle_logits

_PORT = 18207
_OPTIONS = "-c 128 -np 1 --no-warmup -ctk f32 -ctv f32 -fa off"
_PATIENCE = 60
_KEY = "tokenizer.ggml."
_TEXTS = ["<unk>", "<s>", "</s>", *(chr(i) for i in range(0x4E00, 0x4E7F)), "\u4e00\u4e01"]
_WORDS = {
    _KEY + "model": "gpt2",
    _KEY + "pre": "gpt-2",
    _KEY + "tokens": _TEXTS,
    _KEY + "token_type": [3] * 3 + [1] * 128,
    _KEY + "merges": ["\u4e00 \u4e01"],
    _KEY + "bos_token_id": 1,
    _KEY + "eos_token_id": 2,
}


def asked(server: subprocess.Popen[bytes], ids: list[int]) -> list[dict[str, Any]] | None:
    """The next token's candidates; None if the server does not come up."""
    body = {"prompt": ids, "n_predict": 1, "n_probs": 131, "temperature": 0, "ignore_eos": True}
    request = Request(f"http://127.0.0.1:{_PORT}/completion", json.dumps(body).encode())
    request.add_header("content-type", "application/json")
    for _ in range(2 * _PATIENCE):
        if server.poll() is not None:
            return None
        try:
            with urlopen(request, timeout=_PATIENCE) as answer:
                answered = json.load(answer)["completion_probabilities"][0]
        except (URLError, ConnectionError, KeyError):
            time.sleep(0.5)
        else:
            found: list[dict[str, Any]] = answered["top_logprobs"]
            return found
    return None


def compared(program: str, case: str, folder: Path) -> str:
    model = make(case, folder, {**CASES, **FOLDED}[case])
    file, log = write_gguf(folder, folder / "m.gguf", metadata=_WORDS), folder / "log"
    ids = np.random.default_rng(9).integers(3, 131, 40).tolist()
    command = [program, "-m", str(file), "--port", str(_PORT), *_OPTIONS.split()]
    with log.open("wb") as out, subprocess.Popen(command, stdout=out, stderr=out) as server:
        try:
            found = asked(server, ids)
        finally:
            server.kill()
    if found is None:
        return log.read_text(errors="replace")[-300:].strip()
    logits = oracle_logits(model, ids)[-1]
    expected = logits - np.logaddexp.reduce(logits)
    return f"{max(abs(each['logprob'] - expected[each['id']]) for each in found):.1e}"


if __name__ == "__main__":
    for case in sys.argv[2:] or [*CASES, *FOLDED]:
        with tempfile.TemporaryDirectory() as folder:
            print(f"{case:28} {compared(sys.argv[1], case, Path(folder))}", flush=True)
