"""Parsers of model output: reasoning, tool calls and the text between them."""
