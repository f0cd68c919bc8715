"""A long batch takes no more memory than a short one."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

LINES = 20_000
PROGRAM = """
import sys
from pathlib import Path
from mlcc.batches.local_batch import LocalBatch
from mlcc.local.caller import Caller
from tests.helpers.toy.toy_model import open_toy

def resident():
    line = next(line for line in open("/proc/self/status") if line.startswith("VmRSS"))
    return int(line.split()[1]) / 1024

def report(name, done, total, unit):
    if name == "answering" and done in (1000, total):
        print(resident(), flush=True)

batch = LocalBatch(Path(sys.argv[1]), Path(sys.argv[2]), "toy").open(lambda *step: None)
caller = Caller(open_toy)
caller.start(batch.run(caller.answer, 16, report)).result()
batch.write()
caller.close()
print(resident())
"""


@pytest.mark.long
def test_memory_does_not_grow_with_the_lines(tmp_path: Path) -> None:
    source, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    with source.open("w") as file:
        for number in range(LINES):
            body = {"prompt": f"hello {number}", "max_tokens": 2, "temperature": 0}
            line = {"custom_id": f"{number}", "url": "/v1/completions", "body": body}
            file.write(json.dumps(line) + "\n")
    command = [sys.executable, "-c", PROGRAM, str(source), str(out)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    early, late, end = map(float, done.stdout.split())
    assert max(late, end) < early + 8, "MiB"
    with out.open() as file:
        assert sum(1 for _ in file) == LINES
