"""The runtime that a model library for a browser tab carries: TVM's own C++, as wasm."""
