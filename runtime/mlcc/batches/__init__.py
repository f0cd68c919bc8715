"""Batches: files of requests that are answered in the background, and files of their answers.

`journal.py` keeps the lines and their answers in SQLite, `runner.py` answers them through
`mlcc.service`. `mlcc batch` needs no more. A server adds files and batches of its API keys
(`store.py`, `manager.py`). Standard library only.
"""
