"""Tests of `mlcc.batches`."""
