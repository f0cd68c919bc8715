"""The KV cache's bookkeeping: page pools, block tables and the radix tree of prefixes."""
