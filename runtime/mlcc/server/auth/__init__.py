"""Who may ask: API keys, rate limits and allowed host names."""
