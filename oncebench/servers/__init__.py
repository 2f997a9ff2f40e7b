"""Servers of a run: Kafka, PostgreSQL, those of packages; started by the suite or the user's own."""
