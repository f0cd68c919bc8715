"""Data shared by models, passes and kernels: graph helpers, cache groups, weight layouts, TVM
imports.
"""
