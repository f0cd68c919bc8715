"""`mlcc serve`: options, checks, and the models and replicas to start."""
