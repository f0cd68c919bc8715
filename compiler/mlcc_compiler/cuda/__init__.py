"""CUDA C++ to machine code; no GPU is needed."""
