"""Processes that render and tokenize prompts, beside the server's process."""
