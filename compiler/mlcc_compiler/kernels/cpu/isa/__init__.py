"""CPU instruction sets: vectors, register tiles, AMX."""
