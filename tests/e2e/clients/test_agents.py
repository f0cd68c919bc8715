"""Agents in their published versions edit a file through their own tools: one scripted task each.

The model is scripted and follows the task; the agent's system prompt, its tools (a hundred thousand
characters of them), its protocol and the file on disk are real.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.e2e.clients.environments import packages

pytestmark = pytest.mark.long


def run(home: Path, command: list[str], **variables: str) -> str:
    """The output of an agent in an empty home folder."""
    environment = {"PATH": os.environ["PATH"], "HOME": str(home), **variables}
    work = home / "work"
    done = subprocess.run(
        command,
        cwd=work,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "work").mkdir()
    return tmp_path


def program(name: str) -> str:
    return str(packages() / "node_modules" / ".bin" / name)


@pytest.mark.client("Claude Code", "edit")
def test_claude_code(scripted: str, home: Path) -> None:
    note = home / "work" / "note.txt"
    order = f"call Write {json.dumps({'file_path': str(note), 'content': 'edited'})}"
    run(
        home,
        [program("claude"), "-p", order, "--allowedTools", "Write"],
        ANTHROPIC_BASE_URL=scripted,
        ANTHROPIC_API_KEY="none",
        ANTHROPIC_MODEL="scripted",
        ANTHROPIC_DEFAULT_HAIKU_MODEL="scripted",
        CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC="1",
        IS_SANDBOX="1",
    )
    assert note.read_text() == "edited"


@pytest.mark.client("Codex CLI", "edit")
def test_codex(scripted: str, home: Path) -> None:
    note = home / "work" / "note.txt"
    settings = {
        "model_provider": "mlcc",
        "model": "scripted",
        "model_providers.mlcc.name": "mlcc",
        "model_providers.mlcc.base_url": f"{scripted}/v1",
        "model_providers.mlcc.wire_api": "responses",
    }
    options = [f"{name}={json.dumps(value)}" for name, value in settings.items()]
    order = f"call exec_command {json.dumps({'cmd': f'echo edited > {note}'})}"
    run(
        home,
        [
            program("codex"),
            "exec",
            "--skip-git-repo-check",
            "--dangerously-bypass-approvals-and-sandbox",
            *(word for option in options for word in ("-c", option)),
            order,
        ],
    )
    assert note.read_text() == "edited\n"


@pytest.mark.client("opencode", "edit")
def test_opencode(scripted: str, home: Path) -> None:
    note = home / "work" / "note.txt"
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "options": {"baseURL": f"{scripted}/v1", "apiKey": "none"},
        "models": {"scripted": {"tool_call": True, "limit": {"context": 200_000, "output": 8_000}}},
    }
    settings = {
        "autoupdate": False,
        "share": "disabled",
        "model": "mlcc/scripted",
        "small_model": "mlcc/scripted",
        "provider": {"mlcc": provider},
        "permission": {"edit": "allow"},
    }
    (home / "work" / "opencode.json").write_text(json.dumps(settings))
    order = json.dumps({"content": "edited", "filePath": str(note)}, separators=(",", ":"))
    # words without spaces, for it puts quotes round others; in the order of the tool's schema
    run(
        home,
        [program("opencode"), "run", "call", "write", order],
        OPENCODE_DISABLE_AUTOUPDATE="1",
        OPENCODE_DISABLE_MODELS_FETCH="1",
    )
    assert note.read_text() == "edited"
