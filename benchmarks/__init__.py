"""asv benchmarks. Each calls stable functions or the command line of oncebench."""
