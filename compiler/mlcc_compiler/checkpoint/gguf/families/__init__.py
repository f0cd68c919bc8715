"""The supported families of GGUF files, by the structure of their layers; `table.py` lists them
all.
"""
