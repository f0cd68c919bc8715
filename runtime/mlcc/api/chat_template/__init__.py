"""Chat templates: compiled in a sandbox, with bounds of time and size, and given the
conversation."""
