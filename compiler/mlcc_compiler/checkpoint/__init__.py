"""Where a model comes from: a folder or a repository, and its small files."""
