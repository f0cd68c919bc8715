"""The sans-IO engine: it plans batches and commits results; it never touches a device or a clock.

Standard library only, so that the same files run in CPython, in Pyodide and inside a phone app.
"""
