"""Products by tensor cores, from weights that are stored in the order of their fragments."""
