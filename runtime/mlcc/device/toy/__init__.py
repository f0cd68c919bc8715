"""The toy executor: an exact oracle whose next token is a hash of what the caches hold."""
