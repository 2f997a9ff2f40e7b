"""asv benchmarks: thin, each calls one stable function of oncebench."""
