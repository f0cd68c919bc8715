"""The OpenAI-style HTTP server: asyncio in one process, the engine in another.

`worker.py` is the engine's process, `process.py` starts it, `client.py` talks to it from asyncio,
`adapter.py` and `app.py` are the HTTP side of `mlcc.service`, which answers; `serve.py` binds and
runs it all. What requests and answers look like is in `mlcc.api`.
"""
