"""Generations in flight, and the client of the engine that runs them."""
