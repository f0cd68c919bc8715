"""Simon Willison's llm, configured with the server by its file of models."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.e2e.clients.programs.client import QUESTION, main


def ask(url, *options):
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "extra-openai-models.yaml").write_text(
            f"- model_id: mlcc\n  model_name: scripted\n  api_base: {url}/v1\n"
        )
        environment = {**os.environ, "LLM_USER_PATH": folder, "OPENAI_API_KEY": "none"}
        command = [sys.executable, "-m", "llm", "-m", "mlcc", *options, QUESTION]
        return subprocess.run(
            command, env=environment, check=True, capture_output=True, text=True
        ).stdout.strip()


def chat(url):
    return {"text": ask(url, "--no-stream")}


def stream(url):
    return {"pieces": [ask(url), ""]}


if __name__ == "__main__":
    main(globals())
