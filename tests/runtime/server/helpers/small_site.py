"""A small chat page and model for browsers, as plain files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from mlcc.artifact.manifest import Manifest
from mlcc.artifact.schema import LibraryInfo
from tests.runtime.artifact.small_artifact import make

WASM = b"\x00asm" + bytes(range(256)) * 8


def for_browsers(manifest: Manifest) -> Manifest:
    return replace(
        manifest,
        target=replace(manifest.target, name="webgpu", device="webgpu", arch="wasm32"),
        library=LibraryInfo(path="LICENSE", kind="wasm"),
    )


def make_model(folder: Path) -> Path:
    """A model for browsers; returns its folder."""
    return make(folder, change=for_browsers)


def make_page(page: Path) -> Path:
    """Write a folder like a build of the page; returns it."""
    for name, data in {
        "index.html": b"<!doctype html><title>mlcc</title>",
        "worker.js": b"export {};",
        "service_worker.js": b"self;",
        "assets/index-BLEe-uZw.js": b"import './worker.js';",
        "assets/index-BlXaiE2g.css": b"body { margin: 0 }",
        "pyodide/pyodide.asm.wasm": WASM,
    }.items():
        path = page / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return page
