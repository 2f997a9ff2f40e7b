"""asv benchmarks. Each is thin and calls one stable function of oncebench."""
