"""The graph between models and kernels: nodes, cache groups, weight layouts, and TVM's one door."""
