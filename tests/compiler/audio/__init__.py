"""Compiled models that hear."""
