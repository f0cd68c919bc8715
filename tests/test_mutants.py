"""The mutation tool: every mutant is another program that compiles, and digests are among them."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest

from tools.mutants import ROOT, mutants_of, source_hash, source_of, survivors

AUTH = "runtime/mlcc/server/auth/"


@pytest.mark.parametrize("file", [f"{AUTH}keyring.py", f"{AUTH}rate_limit.py"])
def test_every_mutant_compiles_and_differs(file: str) -> None:
    plain = ast.unparse(ast.parse((ROOT / file).read_text(encoding="utf-8")))
    sources = [source_of(mutant) for mutant in mutants_of(ROOT / file)]
    assert len(sources) > 30
    assert plain not in sources
    assert len({*sources}) > 0.9 * len(sources)
    for source in sources:
        compile(source, file, "exec")


def test_a_comparison_of_a_part_of_a_digest_is_a_mutant() -> None:
    found = {mutant.what: mutant for mutant in mutants_of(ROOT / f"{AUTH}keyring.py")}
    name = "hmac.compare_digest(key.digest, digest): of 4 bytes"
    assert "hmac.compare_digest(key.digest[:4], digest[:4])" in source_of(found[name])
    assert any("sha256(spelling).digest(): 4 bytes" in what for what in found)


def test_texts_of_errors_are_no_mutants() -> None:
    sources = "".join(mutant.what for mutant in mutants_of(ROOT / f"{AUTH}key_file.py"))
    assert "another --api-key" not in sources
    assert "raise InvalidRequestError" in sources, "leaving one out is a mutant"


def test_a_verdict_of_a_file_that_has_changed_is_not_used_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    same, other = f"{AUTH}keyring.py", f"{AUTH}rate_limit.py"
    rows = [
        {"file": file, "line": 1, "what": "x", "node": node, "choice": 0, "verdict": verdict,
         "source": source, "seconds": 1.0}
        for file, node, verdict, source in (
            (same, 1, "survived", source_hash(same)),
            (same, 2, "killed by a", source_hash(same)),
            (same, 3, "not covered", source_hash(same)),
            (other, 4, "survived", source_hash(same)),
            ("runtime/mlcc/gone.py", 5, "survived", source_hash(same)),
        )
    ]  # fmt: skip
    path = tmp_path / "verdicts"
    path.write_text("\n".join(map(json.dumps, rows)))
    assert [mutant.node for mutant in survivors(path)] == [1, 3]
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2 and f"has changed since: {other}" in lines[1]
