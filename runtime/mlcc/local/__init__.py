"""The API in this process, for Python programs and notebooks: `from mlcc import Engine`.

`engine.py` has the public classes; `caller.py` calls `mlcc.service` as a server does, and has the
results (`View`). The engine runs in a thread; a server gives it a process (`mlcc.worker`).
"""
