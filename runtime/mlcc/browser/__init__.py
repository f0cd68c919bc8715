"""The engine in a browser tab: Python in Pyodide, driven by JavaScript in the same worker.

`entry.py` is what JavaScript calls, in JSON. `planning.py` says what fits the GPU, `tab.py` answers
requests through `mlcc.service`, `engine.py` and `driver.py` run the engine in the event loop,
`executor.py` and `tokenizer.py` are the JavaScript parts behind the runtime's own ports, and
`bridge.py` is the one file that knows how values cross. Runs in CPython too, for the tests.
"""
