"""The compiled model on disk: manifest, integrity checks, weights and text files."""
