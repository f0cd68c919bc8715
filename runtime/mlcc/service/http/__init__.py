"""Requests and responses without a transport: routes, bodies and server-sent events."""
