"""The API in this process, for Python programs and notebooks: `from mlcc import Engine`.

`engine.py` is what users hold, `view.py` what they get, `caller.py` asks `mlcc.service` as a server
does, and `thread.py` runs the engine in a thread as the server does in a process.
"""
