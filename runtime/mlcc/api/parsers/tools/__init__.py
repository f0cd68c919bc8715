"""How models write calls of tools: a file for each way, and `registry.py` that picks one.

Each reads text, which may be cut anywhere, and knows nothing of requests, tokens or engines.
"""
