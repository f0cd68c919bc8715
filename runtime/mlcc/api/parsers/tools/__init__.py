"""Tool parsers: one file for each notation of tool calls, and `registry.py`, which selects one.

A parser reads text, which may be cut anywhere, and knows nothing of requests, tokens or engines.
"""
