"""The HTTP server: OpenAI-compatible and other APIs over ASGI, in one asyncio process.

`serve.py` binds the port and runs uvicorn, `app.py` builds the Starlette application, and `asgi.py`
connects it to `mlcc.service`, which answers the requests. Engines run in processes of
`mlcc.worker`. The request and response formats are in `mlcc.api`.
"""
