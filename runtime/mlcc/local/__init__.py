"""The API in this process, for Python programs and notebooks: `from mlcc import Engine`.

`engine.py` has the public classes, `view.py` their results, and `caller.py` calls `mlcc.service` as
a server does. The engine runs in a thread; a server gives it a process (`mlcc.worker`).
"""
