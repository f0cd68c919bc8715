"""The folder that a compile writes: what its manifest says, whether it holds, and its files."""
