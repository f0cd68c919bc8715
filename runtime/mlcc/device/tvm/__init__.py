"""The executor through TVM's Python package: CUDA, Metal and TVM's own CPU runtime."""
