"""HTTP connections: limits, keep-alive, compression, draining and errors."""
