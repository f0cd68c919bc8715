"""An engine with a thread of its own, and how others talk to it.

`worker.py` is what that thread does, `messages.py` what is said, `process.py` and `thread.py` give
it a process or a thread of this one, and `client.py` is the asyncio end. Knows no HTTP.
"""
