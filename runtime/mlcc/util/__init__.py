"""Small helpers without a subject of their own: files, sizes, CPU cores, dataclasses."""
