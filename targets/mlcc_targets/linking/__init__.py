"""Links objects into libraries, with one linker for all targets."""
