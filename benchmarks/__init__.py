"""Measurements of mlcc beside floors and other engines; `python -m benchmarks.GROUP.NAME`."""
