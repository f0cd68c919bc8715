"""Steps around the pass pipeline: checks, sizes, libraries, display."""
