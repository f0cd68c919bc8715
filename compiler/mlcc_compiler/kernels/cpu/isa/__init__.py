"""What CPU kernels use of an instruction set: vectors, register tiles, AMX."""
