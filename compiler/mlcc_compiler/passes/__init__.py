"""Graph passes, one per file; `mlcc_compiler.pipeline` runs them in order."""
