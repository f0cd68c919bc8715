"""The engine inside a program of another language, in one event loop with it.

This folder serves JavaScript hosts (a browser tab, a worker, Node), with Python in Pyodide; the
host provides the device and the tokenizer. `c/` serves C hosts, with CPython embedded.

`entry.py` is the interface for JavaScript, in JSON. `planning.py` sizes the model for the host's
GPU, `model.py` answers requests through `mlcc.service` (`calls.py`, shared with `c/`), `engine.py`
runs the engine in the event loop with the drivers of `driver.py`, `executor.py`, `tokenizer.py`,
`grammars.py` and `vision.py` implement the runtime's ports on the host's functions, `prompts.py`
makes prompts with them, and `bridge.py` converts values. Runs in CPython too, for the tests.
"""
