"""The families of GGUF files that are read, by what their layers are; `table.py` has them all."""
