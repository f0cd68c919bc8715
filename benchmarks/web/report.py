"""Tables of the results of a run. Measures nothing."""

from __future__ import annotations

import gzip
import re
import statistics
from pathlib import Path
from typing import Any

Figures = dict[str, Any]
QUIET = 0.25
"""The most cores that other processes may use in a round that counts, as in `peers/cpu.py`."""
NAMES = {"mlcc": "mlcc q4", "peer": "transformers.js q4"}
PARTS = (  # the first match counts
    ("weights", r"\.safetensors$|\.onnx_data$"),
    ("model library", r"/model[^/]*\.wasm$|\.onnx$"),
    ("Python", r"/pyodide/|/python/|\.whl$"),
    ("engine, wasm", r"\.wasm$"),
    ("tokenizer, config", r"\.json$|\.jinja$"),
    ("scripts", r"\.m?js$"),
    ("page", r""),
)


def medians(rounds: list[Figures]) -> Figures:
    """Medians of the quiet rounds, or of all rounds if none was quiet."""
    quiet = [r for r in rounds if r["other_cores"] <= QUIET]
    used = quiet or rounds
    figures = {k: statistics.median(r[k] for r in used) for k in ("prefill", "decode")}
    return figures | {"quiet_rounds": len(quiet), "rounds": len(rounds)}


def transfers(sent: dict[str, int]) -> dict[str, Figures]:
    """Bytes of a first visit by part, uncompressed and with gzip."""
    found: dict[str, Figures] = {}
    for name, count in sent.items():
        part = next(label for label, pattern in PARTS if re.search(pattern, name))
        row = found.setdefault(part, {"files": 0, "bytes": 0, "gzip": 0})
        data = Path(name).read_bytes()
        packed = len(gzip.compress(data, 6)) if part != "weights" else len(data)
        row["files"] += 1
        row["bytes"] += count
        row["gzip"] += round(packed * count / max(1, len(data)))
    return dict(sorted(found.items(), key=lambda item: -item[1]["bytes"]))


def tables(result: Figures) -> str:
    """All tables of a run, for a terminal."""
    sections = (_machine, _starts, _speeds, _floors, _batches, _memory, _chats, _transfers)
    return "\n\n".join(filter(None, (section(result) for section in sections)))


def _machine(result: Figures) -> str:
    machine = result["machine"]
    lines = [f"{key}: {value}" for key, value in machine.items()]
    if "swiftshader" in str(machine.get("adapter", "")).lower():
        lines.append("software adapter: says little about a GPU")
    return "\n".join(lines)


def _starts(result: Figures) -> str:
    rows = []
    for shape, found in result["shapes"].items():
        for engine, visits in found["starts"].items():
            for visit, row in visits.items():
                stages, last = [], 0.0
                for stage in row["stages"]:
                    stages.append(f"{stage['name']} {(stage['ms'] - last) / 1e3:.2f}")
                    last = stage["ms"]
                rows.append(
                    (f"{NAMES[engine]} {shape}", visit, f"{last / 1e3:.1f}", ", ".join(stages))
                )
    return _table("Start to first token, s", ("engine", "visit", "total", "stages"), rows)


def _speeds(result: Figures) -> str:
    rows = []
    for shape, of_shape in result["shapes"].items():
        found = {engine: medians(rounds) for engine, rounds in of_shape["speeds"].items()}
        for engine, row in found.items():
            ratio = _ratios(row, found.get("peer")) if engine != "peer" else ""
            quiet = f"{row['quiet_rounds']} of {row['rounds']}"
            speeds = (f"{row['prefill']:.1f}", f"{row['decode']:.2f}")
            tokens = "{prompt} + {answer}".format(**of_shape["sizes"])
            rows.append((f"{NAMES[engine]} {shape}", tokens, *speeds, quiet, ratio))
    heads = ("engine", "tokens", "prefill", "decode", "quiet rounds", "to the peer")
    return _table("Tokens a second, batch 1", heads, rows)


def _floors(result: Figures) -> str:
    found = {shape: row["floors"] for shape, row in result["shapes"].items() if "floors" in row}
    rows = [(shape, *map(str, row.values())) for shape, row in found.items()]
    heads = ("model", *next(iter(found.values()), {}))
    return _table("Floors of this CPU", heads, rows)


def _ratios(row: Figures, peer: Figures | None) -> str:
    if peer is None:
        return ""
    return ", ".join(f"{k} {row[k] / peer[k]:.2f}x" for k in ("prefill", "decode"))


def _batches(result: Figures) -> str:
    rows = []
    for shape, found in result["shapes"].items():
        for row in found.get("batches", []):
            chats = f"{row['chats']}{' (cores apart)' if row['apart'] else ''}"
            python = (f"{row['python_ms']:.2f}", f"{row['python_share']:.1%}")
            parts = [f"{row[f'{part}_ms']:.2f}" for part in ("plan", "pack", "commit", "events")]
            rest = (f"{row['submit_ms']:.2f}", str(row["other_cores"]))
            rows.append((shape, chats, f"{row['decode']:.2f}", *python, *parts, *rest))
    parts = ("plan", "pack", "commit", "events", "submit", "other cores")
    heads = ("model", "chats", "tok/s in all", "Python ms", "share", *parts)
    return _table("mlcc: chats at once, and Python's part of a step", heads, rows)


def _memory(result: Figures) -> str:
    rows = [("empty tab", "", _mb(result["empty"]["tab"]), _mb(result["empty"]["gpu"]), "", "")]
    for shape, found in result["shapes"].items():
        for engine, visits in found["starts"].items():
            for visit, row in visits.items():
                peak, now = row["peak"], row["settled"]
                sizes = [_mb(peak[k]) for k in ("tab", "gpu", "both")]
                rows.append(
                    (f"{NAMES[engine]} {shape}", visit, *sizes, _mb(now["tab"] + now["gpu"]))
                )
    heads = ("engine", "visit", "tab", "GPU process", "both", "both, then")
    return _table("Peak memory, MB (PSS)", heads, rows)


def _chats(result: Figures) -> str:
    rows = [(str(r["chats"]), _mb(r["tab"]), _mb(r["gpu"])) for r in result.get("chats", [])]
    return _table("Memory over many chats, MB (PSS)", ("chats", "tab", "GPU process"), rows)


def _transfers(result: Figures) -> str:
    rows = []
    for shape, found in result["shapes"].items():
        for engine, parts in found["transfers"].items():
            for part, row in parts.items():
                sizes = (f"{row['bytes'] / 1e6:.2f}", f"{row['gzip'] / 1e6:.2f}")
                rows.append((f"{NAMES[engine]} {shape}", part, str(row["files"]), *sizes))
            totals = (f"{sum(r[k] for r in parts.values()) / 1e6:.2f}" for k in ("bytes", "gzip"))
            rows.append((f"{NAMES[engine]} {shape}", "all", "", *totals))
    return _table("First visit, MB", ("engine", "part", "files", "raw", "gzipped"), rows)


def _mb(count: float) -> str:
    return f"{count / 1e6:.0f}"


def _table(title: str, heads: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    if not rows:
        return ""
    widths = [max(len(row[i]) for row in (heads, *rows)) for i in range(len(heads))]
    lines = [
        "  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip()
        for row in (heads, *rows)
    ]
    return "\n".join([title, *lines])
