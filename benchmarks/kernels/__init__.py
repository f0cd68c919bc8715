"""Single kernels beside their floors: bandwidth and arithmetic peaks."""
