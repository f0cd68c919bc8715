"""The version of mlcc, apart from the package itself, which offers the whole API."""

__version__ = "0.1.0"
TVM, TVM_FFI = "0.27.0.post1", "0.1.14.post1"
"""Of apache-tvm and apache-tvm-ffi: what compiles libraries, and whose runtime the executor has
inside. pyproject.toml pins the same."""
