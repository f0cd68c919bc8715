"""Chat templates: compiled in a sandbox with bounds on work and time, and rendered."""
