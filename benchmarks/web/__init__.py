"""A Chromium tab beside transformers.js."""
