"""The models of a server: loading, evicting, and the backends that answer."""
