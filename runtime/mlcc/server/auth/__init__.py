"""Authentication and limits: API keys, rate limits and allowed host names."""
