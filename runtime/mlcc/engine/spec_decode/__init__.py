"""Speculative decoding: n-gram lookup, draft models, and how many tokens to draft."""
