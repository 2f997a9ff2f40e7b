"""Kafka brokers: one that the suite starts, or the user's own."""
