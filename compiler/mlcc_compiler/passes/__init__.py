"""One graph pass per file; `mlcc_compiler.pipeline` runs them in order."""
