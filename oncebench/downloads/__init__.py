"""Java and jars: downloaded once, checked by SHA-256, and kept in a cache."""
