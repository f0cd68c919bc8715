"""A server process under load."""
