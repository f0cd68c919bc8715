"""Mixtures of experts; `experts.py` is the door for their matrices, `route.py` for the rest."""
