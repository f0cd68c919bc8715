"""Memory planning: what fits, how many pages, and experts that stay on disk."""
