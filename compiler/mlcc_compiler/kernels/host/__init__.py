"""Kernels that a compile runs itself, on the machine that compiles."""
