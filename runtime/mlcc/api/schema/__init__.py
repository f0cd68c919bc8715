"""The one schema of the API: fields, types, bounds and what is refused."""
