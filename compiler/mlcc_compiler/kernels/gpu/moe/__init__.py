"""Mixture of experts on the GPU: `experts.py` has the matrix products, `router.py` the routing."""
