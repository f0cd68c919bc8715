"""The runtime in model libraries for browsers: TVM's C++, compiled to wasm."""
