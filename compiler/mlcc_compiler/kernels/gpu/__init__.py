"""GPU kernels: one set of TIR for all GPU targets, shaped by the limits in the target's row."""
