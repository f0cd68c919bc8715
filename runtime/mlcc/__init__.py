"""mlcc: load a compiled language model and answer with it.

This package is the engine that every device shares. It is not the compiler
(`mlcc_compiler`) and never imports it.
"""

__version__ = "0.1.0"
