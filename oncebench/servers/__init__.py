"""Servers of a run: Kafka, PostgreSQL, Pravega; started by the suite or the user's own."""
