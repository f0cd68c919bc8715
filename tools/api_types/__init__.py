"""Prints the API's requests and responses as types of other languages, from the one schema."""
