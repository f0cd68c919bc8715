"""Executors: what runs the engine's batches on a device. The port is
`mlcc.engine.batch.executor`."""
