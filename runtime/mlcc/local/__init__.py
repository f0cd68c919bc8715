"""The API in this process, for Python programs and notebooks: `from mlcc import Engine`.

`engine.py` is what users hold, `view.py` what they get, and `caller.py` asks `mlcc.service` as a
server does. The engine runs in a thread, where the server gives it a process (`mlcc.worker`).
"""
