"""A file per protocol: its addresses, answered by translating to what `mlcc.service.generate` asks
of the engine and back. What a protocol's bodies and events look like is pure translation and lies
in `mlcc.api`.
"""
