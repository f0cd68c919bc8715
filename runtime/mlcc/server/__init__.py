"""The OpenAI-style HTTP server: asyncio in one process, the engine in another.

The engine's process and who talks to it are `mlcc.worker`'s. `adapter.py` and `app.py` are the HTTP
side of `mlcc.service`, which answers; `serve.py` binds and
runs it all. What requests and answers look like is in `mlcc.api`.
"""
