"""Calibration: what a text shows about a model's inputs, and how weights are rounded for it."""
