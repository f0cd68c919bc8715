"""mlcc's built files for browsers: the chat page (`page/`), and the wasm runtime (`wasm/`) that
models for a tab are linked with. Files only, which mlcc finds by this package's folder."""
