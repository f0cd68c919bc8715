"""One module for each protocol: its handlers translate requests to `mlcc.service.generate` and
results back. The shapes of bodies and events are in `mlcc.api`.
"""
