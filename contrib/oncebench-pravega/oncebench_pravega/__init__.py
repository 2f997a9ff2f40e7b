"""Pravega sink: exactly-once by the transactions of a stream."""
