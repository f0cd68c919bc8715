"""The version of mlcc, apart from the package itself, which offers the whole API."""

__version__ = "0.1.0"
