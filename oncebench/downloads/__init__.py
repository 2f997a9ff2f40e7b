"""Java and jars, downloaded once and checked by hash."""
