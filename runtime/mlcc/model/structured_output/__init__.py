"""Structured output: JSON Schema, regular expressions and grammars as token masks."""
