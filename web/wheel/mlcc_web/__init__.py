"""What mlcc has for browsers, built: the chat page (`page/`), and the wasm runtime (`wasm/`) that
models for a tab are linked with. Files alone, which mlcc finds by this package's folder."""
