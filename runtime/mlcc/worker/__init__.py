"""Runs an engine in a thread or process of its own, and talks to it.

`worker.py` is the engine loop, `messages.py` its protocol. `process.py` runs the loop in a process,
`EngineThread` in a thread of this process; `client.py` is the asyncio client. Does not know HTTP.
"""
