"""Executors: the port between the engine's batches and a device. See `executor.py`."""
