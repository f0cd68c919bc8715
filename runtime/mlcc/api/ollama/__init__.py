"""Ollama's API in OpenAI's words and back. Pure translation: no engine, clock or transport."""
