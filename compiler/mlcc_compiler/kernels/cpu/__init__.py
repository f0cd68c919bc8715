"""CPU kernels: vector TIR chosen by the instruction set of the target row."""
