"""The engine inside a program of another language, in one event loop with it.

Here is what a host that speaks JavaScript needs, with Python in Pyodide: a browser's tab, a worker,
Node; it brings device and tokenizer. `c/` is the same for one that speaks C, with CPython embedded.

`entry.py` is what JavaScript calls, in JSON. `planning.py` says what fits its GPU, `model.py`
answers requests through `mlcc.service` (`calls.py`, which both share), `engine.py` runs the engine
in the event loop (its pump is `driver.py`, that of encoders `encoding.py`, both of them `pump.py`),
`executor.py` and `tokenizer.py` are the host's parts behind the runtime's own ports, and
`bridge.py` is the one file that knows how values cross. Runs in CPython too, for the tests.
"""
