"""Mixture of experts on the CPU: `experts.py` has the matrix products, `router.py` the routing."""
