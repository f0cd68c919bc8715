"""Ollama's API, translated to OpenAI's and back. Plain values only: no engine, clock or
transport."""
