"""Runs the commands of the guides' shell blocks, with the demo model in place of MODEL.

    python -m tools.guide_commands --list
    python -m tools.guide_commands --run FOLDER [WORD]

`--run` runs each command that contains WORD in FOLDER, where LINKED of this clone are linked, with
a line of text as standard input; a server is stopped once it is ready. It takes minutes, and what
is for browsers needs `python3 dev.py web` before. What needs a hub, another machine, a package
manager or a file of yours is listed as left out.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

ROOT = Path(__file__).parent.parent
GUIDES = (
    *("README.md", "docs/start/*.md", "docs/*.md", "examples/*/README.md"),
    *("web/README.md", "mobile/README.md"),
)
LINKED = ("examples", "mobile", "web")
STANDS_FOR = {
    r"\bMODEL\b|\bCHECKPOINT\b|path/to/checkpoint|\bFOLDER\b": "examples/demo/model",
    r"dist/(NAME|MODEL|examples/demo/model)-": "dist/demo-",
    r"\bCOMMAND\b": "run",
    r"\btexts\.(jsonl|txt)\b": "examples/demo/heldout.jsonl",
    r"--context (4096|8192)": "--context 2048",  # the demo's
    r"\$KEY": "sk-of-the-guides",
    r"\s\[[^]]*\]": "",  # an option that may be left out
}
LEFT_OUT = (
    *("pip ", "docker ", "curl ", "hf://", "org/", "qwen3", "all-MiniLM", "python3 -m venv"),
    *("claude", "codex", "ollama", "lm_eval", "dev.py", "npm ", "npx ", "HOST", "sha256sum"),
    *("--ray", "--device", "--draft", "--lora", "--tp", "-tp2", " A B", " A ", "names update"),
    *("NDK", "ROOT", "model.gguf", "keys.json", "dist/small", "SmolVLM", "photo.jpg"),
    *("serve dist/MODEL-q4-cuda", "chat dist/MODEL-q4-metal"),
)
READY_S = 180


def commands(patterns: Iterable[str] = GUIDES) -> Iterator[tuple[Path, str]]:
    """Each command with its file, continued lines joined, without its comment."""
    files = dict.fromkeys(path for pattern in patterns for path in sorted(ROOT.glob(pattern)))
    for path in files:
        for block in re.findall(r"```sh\n(.*?)```", path.read_text(encoding="utf-8"), re.DOTALL):
            for line in block.replace("\\\n", " ").splitlines():
                if command := re.sub(r"(^|\s)#.*", "", line).strip():
                    yield path.relative_to(ROOT), command


def runnable(command: str) -> str | None:
    """The command with the demo model; None = it is left out."""
    if any(word in command for word in LEFT_OUT):
        return None
    for pattern, text in STANDS_FOR.items():
        command = re.sub(pattern, text, command)
    return command


def run(command: str, folder: Path) -> str:
    """Run one command; returns "" or the end of what it printed when it failed."""
    python = f'"{sys.executable}"'
    ours = f'mlcc() {{ {python} -m mlcc "$@"; }}; python3() {{ {python} "$@"; }}'
    shell = f'{ours}; python() {{ {python} "$@"; }}; {command}'
    sources = [str(ROOT / name) for name in ("runtime", "compiler", "targets")]
    process = subprocess.Popen(
        ["bash", "-c", shell],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sources)},
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    is_server = " serve " in f"{command} "
    is_ready = is_server and wait_for_server(process)
    if is_ready:
        os.killpg(process.pid, signal.SIGINT)
    output = process.communicate("Hello\n", timeout=900)[0]
    return "" if is_ready or (process.returncode == 0 and not is_server) else output[-600:]


def wait_for_server(process: subprocess.Popen[str]) -> bool:
    """Whether the API or the page answers while the process lives."""
    end = time.monotonic() + READY_S
    while time.monotonic() < end and process.poll() is None:
        time.sleep(0.5)
        for path in ("ready", "web/"):
            try:
                with urlopen(f"http://127.0.0.1:8000/{path}", timeout=2):
                    return True
            except (URLError, OSError):
                continue
    return False


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--list", action="store_true", help="Only list the commands.")
    parser.add_argument("--run", type=Path, metavar="FOLDER", help="Run them in this folder.")
    parser.add_argument("word", nargs="?", default="", help="Only commands that contain it.")
    args = parser.parse_args()
    failed = 0
    for path, written in commands():
        if args.word not in written:
            continue
        command = runnable(written)
        if command is None or args.run is None:
            print(f"{'left out' if command is None else 'runs':<9} {path}: {written}", flush=True)
            continue
        args.run.mkdir(exist_ok=True)
        for name in LINKED:
            if not (link := args.run / name).exists():
                link.symlink_to(ROOT / name)
        began, fault = time.monotonic(), run(command, args.run)
        failed += bool(fault)
        seconds = time.monotonic() - began
        print(f"{'FAILED' if fault else 'ok':<9} {path}: {command} ({seconds:.1f} s)", flush=True)
        if fault:
            print("    " + fault.replace("\n", "\n    "), flush=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
