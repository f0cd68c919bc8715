"""Several engines: routing and disaggregation simulated, replicas on a real Ray."""
