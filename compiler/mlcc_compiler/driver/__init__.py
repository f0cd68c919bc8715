"""What the command line does around a compile: checks, progress, libraries in threads."""
