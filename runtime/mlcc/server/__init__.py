"""The OpenAI-style HTTP server: FastAPI in one process, the engine in another.

`worker.py` is the engine's process, `process.py` starts it, `client.py` talks to it from asyncio,
`job.py` is one HTTP request's share of it, `routes.py` and `app.py` are the HTTP side, `serve.py`
binds and runs it all. What requests and answers look like is in `mlcc.api`.
"""
