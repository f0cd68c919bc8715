"""The folder that a compile writes."""
