"""Writes the API's types for Python, TypeScript, Kotlin and Swift: `python -m tools.api_types`."""

from __future__ import annotations

import tools.api_types.kotlin as kotlin
import tools.api_types.python as python
import tools.api_types.swift as swift
import tools.api_types.typescript as typescript

for language in (python, typescript, kotlin, swift):
    language.OUT.parent.mkdir(parents=True, exist_ok=True)
    language.OUT.write_text(language.render(), encoding="utf-8")
    print(f"wrote {language.OUT}")
