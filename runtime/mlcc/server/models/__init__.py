"""The models of a server: model sources, memory budget, pool, and backends."""
