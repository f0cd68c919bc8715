"""experimental: disaggregated prefill and decode.

Tested on the CPUs of one machine only. No GPU and no cluster of several machines has run it, and
the gain is not known.
"""
