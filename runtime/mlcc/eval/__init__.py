"""Evaluation of compiled models: accuracy, perplexity, divergence, speed and profiles."""
