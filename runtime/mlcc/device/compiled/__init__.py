"""The executor of compiled libraries, over libmlcc_executor."""
