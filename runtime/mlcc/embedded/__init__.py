"""The engine inside a program of another language, in one event loop with it.

The host brings device and tokenizer. Today that is JavaScript, with Python in Pyodide: a browser's
tab, a worker, Node. An app that embeds CPython will stand on the same files.

`entry.py` is what the host calls, in JSON. `planning.py` says what fits its GPU, `model.py` answers
requests through `mlcc.service`, `engine.py` and `driver.py` run the engine in the event loop,
`executor.py` and `tokenizer.py` are the host's parts behind the runtime's own ports, and
`bridge.py` is the one file that knows how values cross. Runs in CPython too, for the tests.
"""
